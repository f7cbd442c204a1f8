"""Where the public set of 1000 products is, which is no part of the project: in a folder that the user names.

The folder holds ``webshop1k_products.jsonl`` and ``items_ins_v2_1000.json``. What was recorded of the original store is
in ``lucene_tokens_1000docs.txt``, ``lucene_golden_top50_500q.tsv``, ``reward_parts_golden_2000.jsonl`` and
``text_env_traj_golden_30.jsonl``. Each script says which of the files it reads.
"""

import os
import sys
from pathlib import Path

PRODUCTS = "webshop1k_products.jsonl"
_BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "webshop1k"


def real_folder(named: Path | None) -> Path:
    """The folder that is named, or the one in RAGEN_WEBSHOP_DATA, or the one next to the checkout."""
    return named or Path(os.environ.get("RAGEN_WEBSHOP_DATA", _BESIDE))


def asked_for(named: Path | None) -> Path | None:
    """The file of the products, if it is there.

    Raises:
        SystemExit: With 2, if the folder was named and lacks it.
    """
    path = real_folder(named) / PRODUCTS
    if path.exists():
        return path
    if named is None:
        return None
    print(f"there is no {PRODUCTS} in {named}", file=sys.stderr)
    raise SystemExit(2)
