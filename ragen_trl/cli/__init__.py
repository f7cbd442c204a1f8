"""The commands ``python -m ragen_trl {train,warm-start,eval,report,convert,smollm2}``.

`main` runs a command. `options` and `eval_plan` turn a command line into configurations, `training_run` carries out a
training run, `environments` says what an environment lacks, `dry_run` what a command would do, `memory_plan` how much
memory that takes. `help` prints the options, `convert` makes model folders of GGUF files.
"""
