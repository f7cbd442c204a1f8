"""The commands ``python -m ragen_trl {train,warm-start,eval,report}``.

`main` dispatches, `options` goes from a command line to configurations, `training_run` is a whole run with its stages,
`eval_command` an evaluation, `dry_run` says what a command would do.

Imports: everything. Nothing imports this package, except ``ragen_trl.__main__``.
"""
