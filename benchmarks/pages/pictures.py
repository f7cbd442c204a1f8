"""The tables of the small model that sees: each seed, before and after training, beside its controls."""

from typing import Any

from pages.markdown import commit, head, row, success, text

_SHOWN = {
    "own": "its pictures",
    "unseen": "of unseen lakes",
    "blank": "blank",
    "other": "other episodes'",
    "text": "text",
}


def pictures_table(content: dict[str, Any]) -> str:
    """What lessons taught; two rows a seed, the warm start and the trained model; and the same of the text model."""
    columns = ["lessons, seed", "nats a token", "places right on held-out pictures", "on blank ones"]
    lines = head([*columns, "imitation, nats a token"])
    for run in content["runs"]:
        right = [f"{run['places_right'][kind]:.2f}" for kind in ("own", "blank")]
        lines.append(row([run["seed"], f"{run['lesson_loss']:.3f}", *right, f"{run['imitation_loss']:.3f}"]))
    lines += ["", *head(["seed", "model", *_SHOWN.values(), "random", "oracle", "minutes"])]
    lines += [each for run in content["runs"] for each in _stages(run["seed"], run)]
    lines += ["", *head(["seed", "text model", "its text", "of unseen lakes", "random", "oracle", "minutes"])]
    lines += [each for run in content["runs"] for each in _stages(run["seed"], run["on_text"])]
    run = content["runs"][0]
    episodes, unseen = (run["trained"][kind]["n"] for kind in ("own", "unseen"))
    commits = dict.fromkeys(run.get("commit", content["commit"]) for run in content["runs"])
    foot = (
        f"Success [95 % interval], n = {episodes} held-out start states; training never began at {unseen} of them. "
        f"Commit {', '.join(map(commit, commits))}."
    )
    return text([*lines, "", foot])


def _stages(seed: int, run: dict[str, Any]) -> list[str]:
    """The rows of one model."""
    scripts, minutes = [success(run[name]) for name in ("random", "oracle")], f"{run['minutes']:.1f}"
    return [
        row([seed, name, *(success(run[key][kind]) for kind in _SHOWN if kind in run[key]), *scripts, minutes])
        for name, key in (("warm start", "warm_start"), ("trained", "trained"))
    ]
