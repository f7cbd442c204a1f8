"""The command ``python -m ragen_envs {play,baselines,list}``.

`main` reads the command line, `lookup` finds the environment that was named, `games` shows it, `players` decides,
`keyboard` reads single keys. May import everything else in this package; only ``__main__`` imports it.
"""
