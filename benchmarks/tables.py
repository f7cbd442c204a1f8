"""Write the tables of the pages from the committed results.

    python benchmarks/tables.py            # rewrite what is between the marks
    python benchmarks/tables.py --check    # exit status 1 if that would change something, or a result is missing

A table is between ``<!-- table: benchmarks/results/NAME.json -->`` and ``<!-- end of table -->``, in README.md or
in any page under docs/; ``NAME.json#games`` is another table of the same result. ``pages/`` has the functions that
write them. The table of TRL's options is made of the declaration in the package instead:
``<!-- table: ragen_trl/config/trl_options.py -->``.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pages import claims, environments, gpu, models, options, pictures, pretrained, rollouts, store, updates
from pages.learning import curve_tables, question_table
from pages.transcripts import transcripts
from pages.warning_signs import signs_table

ROOT = Path(__file__).resolve().parent.parent
# By the name of the result; the other results are those of training questions.
TABLES: dict[str, Callable[[dict[str, Any]], str]] = {
    "train": updates.train_table,
    "learning_curves": curve_tables,
    "warning_signs": signs_table,
    "claims": claims.verdict_tables,
    "claims#figures": claims.figure_tables,
    "gpu": gpu.campaign_tables,
    "sharded": updates.sharded_table,
    "step_time": updates.step_time_table,
    "rollout_ahead": updates.ahead_table,
    "train_step": updates.update_tables,
    "shared_prefixes": updates.sharing_table,
    "rollout_stepping": rollouts.stepping_table,
    "rollout_throughput": rollouts.throughput_tables,
    "rollout_memory": rollouts.memory_table,
    "shared_contexts": rollouts.contexts_table,
    "baselines": environments.baselines_table,
    "env_throughput": environments.throughput_table,
    "report_size": environments.report_table,
    "pictures": pictures.pictures_table,
    "text_worlds": environments.worlds_table,
    "pretrained": pretrained.pretrained_tables,
    "pretrained#games": pretrained.games_table,
    "pretrained#transcripts": transcripts,
    "model_sizes": models.sizes_table,
    "several_gpus": models.launches_table,
    "architectures": models.models_table,
    "webshop_parity": store.parity_table,
    "webshop_baselines": store.baselines_table,
    "webshop_observations": store.observations_table,
    "webshop_training": store.shopping_tables,
    "webshop_gpu": pretrained.pretrained_tables,
    "webshop_search": store.search_table,
    "webshop_speed": store.speed_table,
    "webshop_load": store.load_table,
    "webshop_size": store.size_table,
}
# Not run yet, so that there is no committed result; any other result that a page shows must be there.
UNANSWERED: frozenset[str] = frozenset()
# By the name of the module that declares it.
DECLARED: dict[str, Callable[[], str]] = {"trl_options": options.trl_table}
MARKED = re.compile(
    r"(<!-- table: ((?:\w+/)+(\w+)\.\w+)(#\w+)? -->\n).*?(<!-- end of table -->)", re.DOTALL
)


def main() -> int:
    """Rewrite or check every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale, missing = [], missing_results(ROOT)
    if missing and options.check:
        print(f"pages show results that are not there: {', '.join(missing)}; commit them", file=sys.stderr)
        return 1
    for page in marked_pages(ROOT):
        text = page.read_text(encoding="utf-8")
        fresh = MARKED.sub(lambda mark: f"{mark[1]}{table(ROOT / mark[2], mark[3], mark[4] or '')}{mark[5]}", text)
        if fresh != text:
            stale.append(str(page.relative_to(ROOT)))
            if not options.check:
                page.write_text(fresh, encoding="utf-8")
    if stale and options.check:
        print(f"not what the results say: {', '.join(stale)}; run python benchmarks/tables.py", file=sys.stderr)
        return 1
    return 0


def marked_pages(root: Path) -> list[Path]:
    """The pages that have a table in them."""
    pages = sorted([root / "README.md", *root.glob("docs/**/*.md")])
    return [page for page in pages if page.exists() and MARKED.search(page.read_text(encoding="utf-8"))]


def missing_results(root: Path) -> list[str]:
    """The result files that pages show and that are not there, those of ``UNANSWERED`` left out."""
    marks = [mark for page in marked_pages(root) for mark in MARKED.finditer(page.read_text(encoding="utf-8"))]
    shown = {mark[2] for mark in marks if mark[3] not in UNANSWERED}
    return sorted(path for path in shown if not (root / path).exists())


def table(path: Path, name: str, part: str = "") -> str:
    """The Markdown of a result file, of a ``#part`` of what it tells, or of a declaration."""
    if name in DECLARED:
        return DECLARED[name]()
    if not path.exists():
        return "No result yet.\n"
    return TABLES.get(f"{name}{part}", question_table)(json.loads(path.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(main())
