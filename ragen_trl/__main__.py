"""``python -m ragen_trl`` and ``ragen-trl``; the commands are in `ragen_trl.cli.main`."""

import sys

try:
    from ragen_trl.cli.main import main
except KeyboardInterrupt:  # while modules load: no traceback
    sys.exit(130)

if __name__ == "__main__":
    sys.exit(main())
