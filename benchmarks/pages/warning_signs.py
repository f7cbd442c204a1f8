"""The table of hits and false alarms of the warning signs, from ``results/warning_signs.json``."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pages.markdown import commit, head, row, text
from ragen_envs import wilson_score

# How many steps before the drop a warning must come to be of use.
LEAD = 10
_HEAD = ("question, task", "variant", "seed", "success: first, best, last", "dropped at", "early signs", "lead")

# Questions whose runs are evaluated often, in games that collapse or are the main job's.
_WATCHED = ("collapse", "train")

Row = Mapping[str, Any]


def signs_table(content: Mapping[str, Any]) -> str:
    """Counts over all runs, with intervals; then a row for each run that dropped or was warned of, and ``collapse``."""
    rows = [found for found in content["runs"] if found["rollouts"] >= content["fewest_rollouts"]]
    watched = [found for found in rows if found["question"] in _WATCHED]
    fresh, known = ([found for found in watched if found["calibrated"] is kind] for kind in (False, True))
    others = [found for found in rows if found["question"] not in _WATCHED]
    games = ", ".join(f"`{name}`" for name in sorted({found["env"] for found in others}))
    lines = head(
        ["runs", "dropped", "warned ≥ 10 steps before", "warned later", "not warned", "healthy", "false alarms"]
    )
    main_job = [found for found in rows if found["question"] == "train"]
    slippery = [found for found in rows if "slippery" in found["task"]]
    groups = {
        "`collapse` and the main job, seeds that no threshold was chosen on": fresh,
        "of those, with RAGEN's schedule (`…_200`)": [found for found in fresh if found["task"].endswith("_200")],
        "of the first, StarPO-S": [found for found in fresh if found["variant"].startswith("starpo_s")],
        "seeds of the same that a threshold was chosen or checked on": known,
        **({f"other questions: {games}": others} if others else {}),
        **({"of all, the main job (`make train`)": main_job} if main_job else {}),
        **({"of all, the lake that slips": slippery} if slippery else {}),
    }
    lines += [row([f"{name} ({len(group)})", *_counts(group)]) for name, group in groups.items()]
    lines += ["", *head(_HEAD), *[_row(found) for found in rows if _is_shown(found)]]
    foot = (
        "In brackets: 95 % interval of the share, of the runs that dropped and of the healthy ones. "
        f"Steps are updates. {len(rows)} runs counted; {len(content['runs']) - len(rows)} had fewer than "
        f"{content['fewest_rollouts']} rollouts, before which no early alert can fire, and of {content['not_judged']} "
        "there is no log. Those of "
        "`collapse` and of the main job were evaluated 15 times and more, most others 4 to 8 times, where only a deep "
        f"and lasting drop is seen. {_judges(content)}."
    )
    return text([*lines, "", foot])


def _judges(content: Mapping[str, Any]) -> str:
    """The commits that judged the runs, the one with most of them first."""
    commits = Counter(found.get("commit", content["commit"]) for found in content["runs"])
    said = [f"{commit(name)} ({number} runs)" for name, number in commits.most_common()]
    return f"Commit {commit(content['commit'])}" if len(said) == 1 else f"Judged by commits {' and '.join(said)}"


def _counts(rows: Sequence[Row]) -> tuple[object, ...]:
    dropped = [found for found in rows if found["drop"] is not None]
    leads = [found["lead"] for found in dropped]
    early = sum(lead is not None and lead >= LEAD for lead in leads)
    unwarned = sum(lead is None for lead in leads)
    healthy = [found for found in rows if found["drop"] is None]
    alarms = sum(found["first_early"] is not None for found in healthy)
    hits, false = _with_interval(early, len(dropped)), _with_interval(alarms, len(healthy))
    return len(dropped), hits, len(leads) - early - unwarned, unwarned, len(healthy), false


def _with_interval(count: int, of: int) -> str:
    """``3 [0.19, 0.81]``: a count, and the 95 % interval of its share; the count alone where there are none."""
    if not of:
        return str(count)
    low, high = wilson_score(count / of, of)
    return f"{count} [{abs(low):.2f}, {high:.2f}]"


def _is_shown(found: Row) -> bool:
    return found["question"] in _WATCHED or found["drop"] is not None or found["first_early"] is not None


def _row(found: Row) -> str:
    signs = ", ".join(_early(found["signs"])) or None
    rates = ", ".join(f"{rate:.2f}" for rate in found["success"])
    where = f"{found['question']}, {found['task']}"
    cells = (where, found["label"], found["seed"], rates, found["drop"], signs, found["lead"])
    return row(["–" if cell is None else cell for cell in cells])


def _early(signs: Iterable[Row]) -> list[str]:
    return [f"`{sign['name']}` {sign['step']}" for sign in signs if sign["kind"] == "early"]
