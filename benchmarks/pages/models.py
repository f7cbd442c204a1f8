"""The tables of which kinds of models are trained on what they sampled, and of what larger models take where."""

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


def sizes_table(content: dict[str, Any]) -> str:
    """One row a model and what of it is trained: settings, and the estimate of the memory on a GPU."""
    columns = ("model", "parameters", "trained", "learning rate", "micro-batch · micro-batches", "weights in")
    lines = head([*columns, "GiB: held", "rollout", "update", "peak"])
    for found in content["rows"]:
        batch = f"{found['rows']} · {found['micro_batches']}"
        settings = [f"{found['trained_parameters']:,}", f"{found['learning_rate']:g}", batch, found["weights"]]
        memory = [f"{found['gib'][phase]:.1f}" for phase in ("held", "rollout", "update", "peak")]
        how = "all weights" if found["lora_r"] == 0 else f"LoRA, r = {found['lora_r']}"
        name, total = found["model"], f"{found['parameters'] / 1e9:.2f} B"
        lines.append(row([name, total, f"{how}: {settings[0]}", *settings[1:], *memory]))
    foot = (
        f"{content['trajectories']} trajectories of at most {content['tokens']:,} tokens a rollout, "
        f"{content['at_once']} of them at a time, gradient checkpointing, bfloat16 on one GPU: the arithmetic of "
        f"`--dry-run`, not measured. Commit {commit(content['commit'])}."
    )
    return text([*lines, "", foot])


def launches_table(content: dict[str, Any]) -> str:
    """One table a size of GPU, one row a model and what of it is trained: what fits, by the number of GPUs."""
    lines: list[str] = []
    for memory in content["memories_gb"]:
        rows = [found for found in content["rows"] if found["memory_gb"] == memory]
        counts = [f"{count} GPU{'s' * (count != '1')}" for count in rows[0]["gpus"]]
        lines += [f"**GPUs of {memory} GB**:", "", *head(["model", "trained", *counts])]
        for found in rows:
            how = "all weights" if found["lora_r"] == 0 else f"LoRA, r = {found['lora_r']}"
            lines.append(row([found["model"], how, *map(_fitting, found["gpus"].values())]))
        lines.append("")
    foot = (
        f"Engine: GB of a process at its peak, then trajectories of a micro-batch. {content['trajectories']} "
        f"trajectories of at most {content['tokens']:,} tokens a rollout, at most {content['at_once']} of them at a "
        f"time in a process, gradient checkpointing, bfloat16, {1 - content['spare']:.0%} of a GPU left free: the "
        f"arithmetic of `--dry-run`, not measured. Commit {commit(content['commit'])}."
    )
    return text([*lines, foot])


def _fitting(found: Mapping[str, Any] | None) -> str:
    return "–" if found is None else f"{found['way']}: {found['peak_gb']:.0f}, {found['rows']}"


def _shift(found: Mapping[str, Any], call: str) -> str:
    """What padding on the left shifts, in nats."""
    if "padded" not in found:
        return "–"
    shift = found["padded"][call]
    return f"{shift:.1f} off" if shift > 1 else f"{shift:.2f} off" if shift > _SHOWN else "exact"


def _reason(found: Mapping[str, Any]) -> str:
    message: str = found.get("refused") or f"fails in TRL: {found['failed']}"
    return message.split("; ")[0].partition(". Use")[0].replace("|", "\\|")
