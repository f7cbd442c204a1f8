"""``python -m ragen_trl``; the commands are in `ragen_trl.cli.main`."""

import sys

from ragen_trl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
