"""The tables of which kinds of models and adapters are trained on what they sampled."""

from collections.abc import Mapping
from typing import Any

from pages.markdown import commit, head, row, text

_SHOWN = 0.001  # nats: below it a shift by padding is rounding


def models_table(content: dict[str, Any]) -> str:
    """Accepted models with their gaps, refused ones with the reason, and the same for adapters."""
    models: Mapping[str, dict[str, Any]] = content["models"]
    accepted = {name: found for name, found in models.items() if "gap" in found}
    lines = head(["accepted", "tokens", "gap: mean", "largest (nats)", "without positions"])
    for name, found in accepted.items():
        gap = found["gap"]
        lines.append(
            row([name, gap["tokens"], f"{gap['mean']:.0e}", f"{gap['largest']:.0e}", _shift(found, "without")])
        )
    lines += ["", *head(["refused", "message, up to its remedy", "scored by the trainer, padded"])]
    for name, found in models.items():
        if name not in accepted:
            lines.append(row([name, _reason(found), _shift(found, "with_positions")]))
    lines += ["", *head(["adapter on a Llama", "largest gap (nats), or the message"])]
    for name, found in content["adapters"].items():
        lines.append(row([name, f"{found['gap']['largest']:.0e}" if "gap" in found else _reason(found)]))
    tried = [*models.values(), *content["adapters"].values()]
    largest = max(found["gap"]["largest"] for found in tried if "gap" in found)
    foot = (
        f"{len(accepted)} kinds of models accepted, {len(models) - len(accepted)} refused; the largest gap of all is "
        f"{largest:.0e} nats. Float32, random weights, seed {content['seed']}. Commit {commit(content['commit'])}."
    )
    return text([*lines, "", foot])


def _shift(found: Mapping[str, Any], call: str) -> str:
    """What padding on the left shifts, in nats."""
    if "padded" not in found:
        return "–"
    shift = found["padded"][call]
    return f"{shift:.1f} off" if shift > 1 else f"{shift:.2f} off" if shift > _SHOWN else "exact"


def _reason(found: Mapping[str, Any]) -> str:
    message: str = found.get("refused") or f"fails in TRL: {found['failed']}"
    return message.split("; ")[0].partition(". Use")[0].replace("|", "\\|")
