"""``python -m ragen_envs {play,baselines,describe,list}``; see `ragen_envs.cli`."""

import sys

from ragen_envs.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
