"""The tables of the small model that sees: each seed, before and after training, beside its controls."""

from typing import Any

from pages.markdown import commit, head, row, success, text

_SHOWN = {"own": "its pictures", "blank": "blank", "other": "other episodes'", "text": "text"}


def pictures_table(content: dict[str, Any]) -> str:
    """What lessons taught; then two rows a seed: the warm start and the trained model, on each kind of message."""
    columns = ["lessons, seed", "nats a token", "places right on held-out pictures", "on blank ones"]
    lines = head([*columns, "imitation, nats a token"])
    for run in content["runs"]:
        right = [f"{run['places_right'][kind]:.2f}" for kind in ("own", "blank")]
        lines.append(row([run["seed"], f"{run['lesson_loss']:.3f}", *right, f"{run['imitation_loss']:.3f}"]))
    lines += ["", *head(["seed", "model", *_SHOWN.values(), "random", "oracle", "minutes"])]
    for run in content["runs"]:
        scripts = [success(run[name]) for name in ("random", "oracle")]
        for name, key in (("warm start", "warm_start"), ("trained", "trained")):
            rates = [success(run[key][kind]) for kind in _SHOWN]
            lines.append(row([run["seed"], name, *rates, *scripts, f"{run['minutes']:.1f}"]))
    episodes = content["runs"][0]["trained"]["own"]["n"]
    foot = f"Success [95 % interval], n = {episodes} held-out start states. Commit {commit(content['commit'])}."
    return text([*lines, "", foot])
