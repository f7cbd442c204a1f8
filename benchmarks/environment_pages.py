"""Write a page for each registered environment, with a moving picture and the committed results.

    python benchmarks/environment_pages.py            # write docs/environments/ and the table in docs/environments.md
    python benchmarks/environment_pages.py --check    # exit status 1 if a page would change

`python -m ragen_envs describe` makes the pages; here the results come to them. An environment whose package is not
installed is named, and its page is left as it is.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # this checkout, whatever is installed

from ragen_envs.baselines import HORIZONS  # noqa: E402
from ragen_envs.cli.lookup import EnvironmentChoiceError, environment_ids, one_line  # noqa: E402
from ragen_envs.cli.page import describe, draws_itself, page_name, write_page  # noqa: E402
from ragen_envs.textworld import MissingTextWorldError  # noqa: E402

RESULTS, FOLDER, OVERVIEW = ROOT / "benchmarks" / "results", ROOT / "docs" / "environments", "docs/environments.md"
TABLE = re.compile(r"(<!-- environments -->\n).*?(<!-- end of environments -->)", re.DOTALL)
# What is measured of an id as it is made, and where more about it is.
SPEEDS = {
    "ragen/FrozenLake-v0": "frozen lake step, as made",
    "ragen/Sokoban-v0": "sokoban step, as made",
    "ragen/SokobanLarge-v0": "large sokoban step, as made",
    "ragen/Tools-v0": "tools step, as made",
}
CATALOGS = {"ragen/ToyShop-v0": "toy", "ragen/WebShop-v0": "synthetic"}  # the default of each
SHOPS = "What other policies reach, and with other catalogues: [experiment](../experiments/webshop_baselines.md)."
READ_ON = {
    "ragen/TextWorld-v0": "[Text adventures](../environments.md#text-adventures): installation, games, ALFWorld. Other "
    "sizes and speed: [experiment](../experiments/text_worlds.md).",
    "ragen/Tools-v0": "[Tools](../tools.md): calls, results and your own tools.",
    "ragen/ToyShop-v0": f"[The store](../webshop.md). {SHOPS}",
    "ragen/WebShop-v0": f"[The store](../webshop.md): catalogues, goals, servers, parity. {SHOPS}",
}


def main() -> int:
    """Write or check every page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    stale = []
    for env_id in environment_ids():
        try:
            if not options.check:
                write_page(FOLDER, f"ragen_envs:{env_id}", rows(), more(env_id))
            elif is_stale(env_id):
                stale.append(f"docs/environments/{page_name(env_id)}.md")
        except EnvironmentChoiceError as error:
            if not isinstance(error.__cause__, MissingTextWorldError):
                raise
            print(f"left out: {error}", file=sys.stderr)
    text = (ROOT / OVERVIEW).read_text(encoding="utf-8")
    fresh = TABLE.sub(lambda mark: f"{mark[1]}{overview()}{mark[2]}", text)
    if not options.check:
        (ROOT / OVERVIEW).write_text(fresh, encoding="utf-8")
    elif fresh != text:
        stale.append(OVERVIEW)
    if stale:
        remedy = "run python benchmarks/environment_pages.py"
        print(f"not what is registered: {', '.join(stale)}; {remedy}", file=sys.stderr)
    return int(bool(stale))


def is_stale(env_id: str) -> bool:
    """Whether the committed page of an id is not what would be written now. Pictures are left to the tests."""
    page = FOLDER / f"{page_name(env_id)}.md"
    name = f"ragen_envs:{env_id}"
    fresh = describe(name, rows(), f"{page_name(env_id)}.gif" if draws_itself(name) else None, more(env_id))
    return not page.exists() or page.read_text(encoding="utf-8") != fresh


def overview() -> str:
    """A row for each id: its page, and the first line of its docstring."""
    links = {env_id: f"[`{env_id}`](environments/{page_name(env_id)}.md)" for env_id in environment_ids()}
    lines = [f"| {link} | {one_line(env_id)} |\n" for env_id, link in links.items()]
    return "".join(["| id | |\n|---|---|\n", *lines])


def rows() -> list[dict[str, Any]]:
    """The committed results of policies that learn nothing, all in the form of `ragen_envs.baselines.Baseline`."""
    measured = [row for name in ("baselines", "text_worlds") for row in content(name)["rows"]]
    for row in content("webshop_baselines")["rows"]:
        published = not row["split"].endswith("_by_product")
        if published and (row["catalog"], row["rules"]) == (CATALOGS[row["env"]], "fixed"):
            low, high = row["success_interval"]
            found = {"env_kwargs": {"split": row["split"]}, "horizon": HORIZONS[row["env"]], "low": low, "high": high}
            measured.append({**row, **found, "mean_return": row["score"]})  # with these rules the score is the return
    return measured


def more(env_id: str) -> dict[str, str]:
    """Further sections of an id's page."""
    found = {}
    if env_id in SPEEDS:
        rate = content("env_throughput")["results"][SPEEDS[env_id]]["median"]
        where = "[experiment](../experiments/env_throughput.md)"
        found["Speed"] = f"{rate:,.0f} steps a second on one core; next to other projects: {where}."
    if env_id in READ_ON:
        found["More"] = READ_ON[env_id]
    return found


def content(name: str) -> Any:
    """A committed result."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main())
