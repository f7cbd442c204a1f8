"""The command ``python -m ragen_envs {play,baselines,describe,list}``.

`main` reads the command line, `lookup` finds the environment, `games` shows it and `players` decide.
"""
