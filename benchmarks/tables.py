"""Paste the tables of the results into README.md and docs/: ``python benchmarks/tables.py [--check]``.

A page has ``<!-- table: benchmarks/results/NAME.json -->`` and ``<!-- end of table -->``; between them comes the
result's ``table``. ``--check`` writes nothing and exits 1 if a page would change.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARKED = re.compile(r"(<!-- table: (\S+\.json) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def main() -> int:
    """Rewrite or check all pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    changed = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        fresh = with_tables(text, ROOT)
        if fresh != text:
            changed.append(str(page.relative_to(ROOT)))
            if not check:
                page.write_text(fresh, encoding="utf-8")
    print(f"{'not what the results say' if check else 'changed'}: {', '.join(changed) or 'no page'}")
    return int(check and bool(changed))


def with_tables(text: str, root: Path) -> str:
    """A page's text with the tables of the results that it names."""

    def fresh(found: re.Match[str]) -> str:
        result = json.loads((root / found[2]).read_text(encoding="utf-8"))
        return f"{found[1]}{markdown(result['table'])}{found[3]}"

    return MARKED.sub(fresh, text)


def markdown(table: dict[str, Any]) -> str:
    """A table and its note.

    Example:
        >>> print(markdown({"columns": ["id", "n"], "rows": [["a", "1"]], "note": "Commit `x`."}), end="")
        | id | n |
        |---|---|
        | a | 1 |
        <BLANKLINE>
        Commit `x`.
    """
    rows = [table["columns"], *table["rows"]]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], "|---" * len(table["columns"]) + "|", *lines[1:], "", table["note"]]) + "\n"


if __name__ == "__main__":
    sys.exit(main())
