"""How a run is launched, as far as memory depends on it: on how many processes, and what an engine divides among them.

Read from what `accelerate launch` and `torchrun` tell the processes that they start, and from TRL's own options
``deepspeed`` and ``fsdp``; nothing is connected or loaded. Offloading is not known here.
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ragen_trl.errors import UserError

Engine = Literal["DDP", "FSDP2", "ZeRO-1", "ZeRO-2", "ZeRO-3"]
_STAGES: dict[int, Engine] = {0: "DDP", 1: "ZeRO-1", 2: "ZeRO-2", 3: "ZeRO-3"}


class LaunchConfigError(UserError, ValueError):
    """A launch configuration cannot be read, or is of a kind that is not known here."""


@dataclass(frozen=True)
class Launch:
    """An engine and its processes; each has a GPU of its own.

    Attributes:
        engine: What divides the model; DDP divides nothing.
        processes: How many.

    Example:
        >>> launch = Launch("ZeRO-2", 8)
        >>> launch.weight_parts, launch.gradient_parts, launch.moment_parts
        (1, 8, 8)
    """

    engine: Engine = "DDP"
    processes: int = 1

    @property
    def weight_parts(self) -> int:
        """Into how many parts weights are divided, except during a rollout."""
        return self.processes if self.engine in ("FSDP2", "ZeRO-3") else 1

    @property
    def gradient_parts(self) -> int:
        """Into how many parts gradients are divided."""
        return self.processes if self.engine in ("FSDP2", "ZeRO-2", "ZeRO-3") else 1

    @property
    def moment_parts(self) -> int:
        """Into how many parts what the optimizer keeps is divided."""
        return 1 if self.engine == "DDP" else self.processes

    @property
    def is_deepspeed(self) -> bool:
        """Whether DeepSpeed's engine holds the weights: in the precision that they compute in, and a float32 copy."""
        return self.engine.startswith("ZeRO")

    @property
    def casts_weights(self) -> bool:
        """Whether weights are cast as a whole for mixed precision, instead of layer by layer as autocast does it."""
        return self.engine != "DDP"

    def in_words(self) -> str:
        """For a plan: ``8 processes, FSDP2``."""
        return f"{self.processes} processes, {self.engine}"


def launch_of(
    processes: int, deepspeed: Any = None, fsdp: Any = None, environ: Mapping[str, str] = os.environ
) -> Launch:
    """How this process was launched, by TRL's options ``deepspeed`` and ``fsdp`` and the variables of the process.

    Raises:
        LaunchConfigError: If DeepSpeed's configuration names no known stage, or FSDP is of version 1.
    """
    if deepspeed or environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        return Launch(_STAGES[_stage(deepspeed, environ)], processes)
    if environ.get("ACCELERATE_USE_FSDP", "").lower() == "true" or fsdp:
        if environ.get("FSDP_VERSION", "2") != "2":
            raise LaunchConfigError("this is FSDP of version 1; write fsdp_version: 2 into the launch configuration")
        return Launch("FSDP2", processes)
    return Launch("DDP", processes)


@contextmanager
def as_if(processes: int) -> Iterator[None]:
    """Make configurations as one of several processes does, without starting or connecting any: for a dry run.

    Relies on the sizes of batches coming from ``TrainingArguments.world_size``.
    """
    from transformers import TrainingArguments

    known = TrainingArguments.world_size
    if processes > 1:
        TrainingArguments.world_size = property(lambda self: processes)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        TrainingArguments.world_size = known  # type: ignore[method-assign]


def _stage(deepspeed: Any, environ: Mapping[str, str]) -> int:
    given = deepspeed or environ.get("ACCELERATE_DEEPSPEED_CONFIG_FILE", "none")
    try:
        if isinstance(given, str) and given != "none":
            given = json.loads(Path(given).read_text(encoding="utf-8"))
        known = given["zero_optimization"]["stage"] if isinstance(given, dict) else None
        stage = int(environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2") if known is None else known)
        _ = _STAGES[stage]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise LaunchConfigError(
            f"DeepSpeed's configuration {given!r} names no stage of ZeRO from 0 to 3 ({error}); give "
            'zero_optimization: {"stage": 2} or 3, or zero_stage in the file for accelerate launch'
        ) from None
    return stage
