"""``python -m ragen_trl show RUN``: episodes of evaluations in the terminal, turn by turn."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ragen_trl.errors import UserError
from ragen_trl.evaluation.folder import episodes_by_policy
from ragen_trl.rollout.episode import FAILED

# All control characters but tab and newline: a model must not write on the terminal what it likes.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def show(folder: Path, policy: str | None, failed: bool, count: int, say: Callable[[str], None]) -> None:
    """Print the first ``count`` episodes of a policy, or of those that did not solve the task (``failed``).

    Without a name it is the policy that was trained, of an evaluation its last model. Raises `UserError` if there are
    no episodes, or none of that policy.
    """
    found = episodes_by_policy(folder)
    if not found:
        raise UserError(f"{folder} holds no evaluation; give a folder of train or eval, or see `report {folder}`")
    if policy is None:
        policy = next((name for name in reversed(found) if name != "oracle"), "oracle")
    if policy not in found:
        raise UserError(f"{folder} has no episodes of {policy!r}; name one of {', '.join(found)}")
    wanted = [row for row in found[policy] if not failed or (not row["success"] and row["limit"] not in FAILED)]
    for row in wanted[: max(0, count)]:
        say(in_words(policy, row))
    what = "failed episodes" if failed else "episodes"
    say(f"{min(max(0, count), len(wanted))} of {len(wanted)} {what} of {policy}; policies here: {', '.join(found)}")


def in_words(title: str, row: Mapping[str, Any]) -> str:
    """An episode for the terminal, of a row of `episode_row` with its ``transcript``."""
    sample = f" / {row['sample'] + 1}" if row["sample"] else ""
    ending = f", {'fault' if row['limit'] in FAILED else 'limit'}: {row['limit']}" if row["limit"] else ""
    outcome = "success" if row["success"] else "no success"
    head = f"== {title}, seed {row['seed']}{sample}: {outcome}, return {row['return']:g}{ending} {row['error']}"
    lines = [head.rstrip()]
    for place, turn in enumerate(row.get("transcript", ()), start=1):
        readable, allowed = turn.get("format_is_valid", True), turn.get("action_is_valid", True)
        marks = "" if readable and allowed else ", invalid action" if readable else ", unreadable reply"
        marks += ", cut at the token limit" if turn.get("cut") else ""
        lines += [f"-- turn {place}, reward {turn['reward']:g}{marks}", turn["observation"], f"> {turn['reply']}", ""]
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", "\n".join(lines))
