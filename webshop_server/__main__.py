"""The command `webshop-server`, which is also `python -m webshop_server`."""

import sys

from webshop_server.server.command import main

if __name__ == "__main__":
    sys.exit(main())
