"""What committed JSON keeps of runs, so that results outlive the machine that made them.

``committed`` finds runs by the digest of their settings, whichever JSON holds them; ``measures`` is what is kept of the
logs, for the warning signs and the figures; ``results`` writes what a script measured. May import: ``ragen_trl``.
Imported by: ``learning``, ``agents``, ``findings`` and the scripts.

The package must be the one beside these scripts: otherwise they would measure one commit and record another.
"""

from importlib.util import find_spec
from pathlib import Path

_CHECKOUT = Path(__file__).resolve().parents[2]
_found = find_spec("ragen_trl")
_package = None if _found is None else Path(str(_found.origin)).resolve().parent
if _package != _CHECKOUT / "ragen_trl":
    raise ImportError(
        f"the scripts in {_CHECKOUT / 'benchmarks'} would measure the package in {_package}; run pip install -e "
        f"{_CHECKOUT}, or set PYTHONPATH={_CHECKOUT}"
    )
