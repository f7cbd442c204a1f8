"""The command ``python -m ragen_envs {play,baselines,describe,list}``.

`main` reads the command line, `lookup` finds the environment that was named, `games` shows it, `players` decides,
`keyboard` reads single keys. `docstring`, `episode` and `page` describe an environment. May
import everything else in this package; only ``__main__`` and `benchmarks/environment_pages.py` import it, and of
`lookup` a caller that names environments as these commands do (`ragen_envs.make_named`).
"""
