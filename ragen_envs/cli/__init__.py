"""The command ``python -m ragen_envs {play,baselines,check,describe,list}``.

`main` reads the command line, `lookup` finds the environment, `play` shows it, `page` describes it.
"""
