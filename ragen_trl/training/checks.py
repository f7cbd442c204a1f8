"""Checks of what a trainer's hooks and reward functions return, made at once, so the message names the hook."""

import functools
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch
from peft import PeftModel
from trl.trainer.utils import get_callable_name, is_async_callable

from ragen_trl.errors import NotFiniteError, OptionError, UserError
from ragen_trl.rollout.interfaces import Start


class HookError(UserError, ValueError):
    """A hook or a reward function returned what a trainer cannot use."""


_AFTER_NOT_FINITE = (
    "Resume from the last checkpoint with a lower learning_rate, or in bf16 or float32 if you train in fp16. Against "
    "ratios that overflow make fewer updates on a rollout (num_iterations, steps_per_generation) or lower delta; clamp "
    "advantages of your own"
)
_PARTS_OF_A_LOSS = ("ref_per_token_logps", "old_per_token_logps", "importance_sampling_ratio", "advantages")


class EnvironmentsFailError(UserError, RuntimeError):
    """Every episode of a rollout failed in its environment: there is nothing to learn, and a fault to repair."""


def check_played(trajectories: Any, starts: Sequence[Start], strict: bool) -> None:
    """Raise `HookError` unless ``rollout`` returned one trajectory per start, in their order.

    Members of a group, and A*-PO's V*, are told by their places. ``strict``: a place says more than its start state (an
    environment, columns for reward functions), so outcome seeds are compared, too, where the hook has not left them
    out.
    """
    if not isinstance(trajectories, Sequence) or len(trajectories) != len(starts):
        raise HookError(f"rollout returned something else than a list of {len(starts)} trajectories, one per start")
    for place, (trajectory, start) in enumerate(zip(trajectories, starts, strict=True)):
        outcome = trajectory.outcome_seed if strict and trajectory.outcome_seed is not None else start.outcome_seed
        if (trajectory.seed, outcome) != (start.seed, start.outcome_seed):
            raise HookError(
                f"rollout returned at place {place} a trajectory of seed {trajectory.seed} and outcome seed {outcome}, "
                f"where the start has {start.seed} and {start.outcome_seed}; return them in the order of the starts"
            )


def check_failures(trajectories: Sequence[Any], failures: float, count: int) -> None:
    """Raise `EnvironmentsFailError`, on all processes together, if all ``count`` episodes of a rollout failed."""
    if failures < count:
        return
    reason = str(trajectories[0].turns[-1].info["error"]).strip() if trajectories else "see the other processes"
    raise EnvironmentsFailError(
        f"all {count} episodes failed in the environment (one that has to stay in the thread that made it needs "
        f"env_workers=0), first with: {reason}"
    )


def checked_groups(groups: Any, count: int, most: int) -> list[int]:
    """What ``select_groups`` returned (a list, a tensor or an array), as a list.

    Raises:
        HookError: If these are not ascending indices of ``count`` groups, or more than ``most``, which micro-batches
            have room for.
    """
    listed = list(groups.tolist() if hasattr(groups, "tolist") else groups)
    right = all(isinstance(group, int | np.integer) and 0 <= group < count for group in listed)
    if any(isinstance(group, bool) for group in listed) or not right or listed != sorted(set(listed)):
        raise HookError(
            f"select_groups returned {listed}; return ascending, different indices of groups, 0 to {count - 1}, no mask"
        )
    if len(listed) > most:
        raise HookError(
            f"select_groups returned {len(listed)} groups of {count}, and a rollout has {most}, which fill the passes "
            "of an update; return no more than args.groups_per_update where other rollouts follow (max_refills)"
        )
    return [int(group) for group in listed]


def check_advantages(advantages: Any, trajectories: int, tokens: tuple[int, int]) -> None:
    """Raise `HookError` unless ``advantages`` returned finite numbers: (B,) of all processes, or (L, T) of this one."""
    if getattr(advantages, "shape", None) not in ((trajectories,), tokens):
        raise HookError(
            f"advantages is a {type(advantages).__name__} of shape {tuple(getattr(advantages, 'shape', ()))}; give one "
            f"for each of the {trajectories} trajectories, or {tokens} for every completion token of this process"
        )
    if not bool(torch.isfinite(advantages).all()):
        raise HookError("advantages are NaN or infinite; one is enough to turn every weight of the model into NaN")


def check_epochs(args: Any, micro_batches: int, updates: int) -> None:
    """Raise `OptionError` for epochs that end within an update: Transformers would make the update of what is left."""
    size = args.gradient_accumulation_steps
    if micro_batches % size and updates * size > micro_batches:
        of_update = 1 / args.steps_per_rollout
        multiple = f"{of_update * args.groups_per_generation:g} start states (num_train_seeds, rows of the data set)"
        raise OptionError(
            f"an epoch has {micro_batches / size * of_update:g} rollouts and an update takes {of_update:g}, so that "
            "the last one of an epoch would be cut short; set max_steps instead of num_train_epochs, or have a "
            f"multiple of {multiple}"
        )


class LaunchError(UserError, RuntimeError):
    """The processes of a launch cannot train together."""


def check_launch(trainer: Any) -> None:
    """Refuse a policy that cannot learn, processes that cannot train together, and ``merge_lora`` where it may not be.

    Raises:
        LaunchError, OptionError: With the remedy.
    """
    if not any(value.requires_grad for value in trainer.model.parameters()):
        raise OptionError(
            "no parameter of the model is trainable, so a run would learn nothing; load an adapter with "
            "is_trainable=True, or call requires_grad_(True)"
        )
    if int(os.environ.get("WORLD_SIZE", "1")) > trainer.accelerator.num_processes:
        raise LaunchError(
            f"launched as {os.environ['WORLD_SIZE']} processes that are not connected: each would train alone, "
            "into the same folder; on the CPU set use_cpu=True and launch with torchrun"
        )
    if trainer.is_fsdp_enabled and trainer.accelerator.state.fsdp_plugin.fsdp_version != 2:
        raise LaunchError(
            "fsdp_version is 1, whose weights cannot be kept whole for a rollout; launch with fsdp_version 2"
        )
    if not trainer.args.merge_lora:
        return
    if not isinstance(trainer.accelerator.unwrap_model(trainer.model), PeftModel):
        raise OptionError("merge_lora is True, but the model has no adapter; train LoRA (lora_r), or leave it off")
    if trainer.use_vllm:
        raise OptionError("merge_lora is True and use_vllm, which merges anyway; leave the first off")
    if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
        held = trainer.accelerator.distributed_type.value
        raise OptionError(f"merge_lora is True, but {held} holds the weights that it changes; leave it off, or use DDP")


def check_loss(loss: Any, scores: Sequence[Any]) -> None:
    """Raise `HookError` unless ``policy_loss`` had tokens scored, and returned one number that has a gradient."""
    if not scores:
        raise HookError(
            "policy_loss asked for no log-probabilities; take them from self.score(model, inputs), or call "
            "super().policy_loss(model, inputs)"
        )
    if not isinstance(loss, torch.Tensor) or loss.ndim != 0:
        raise HookError(f"policy_loss returned {loss!r}; return a tensor with one number, the sum over the micro-batch")
    if not loss.requires_grad and loss.item() != 0:  # 0 is that of a micro-batch with nothing to learn
        raise HookError("policy_loss has no gradient; calculate it from what score returns, without detach")


def raise_not_finite(
    loss: torch.Tensor, place: str, scores: Sequence[torch.Tensor | None], inputs: Mapping[str, Any], mask: torch.Tensor
) -> NoReturn:
    """Raise `NotFiniteError`, naming what is not finite at the (B, T) sampled tokens of this process's micro-batch.

    All processes do, as soon as the loss of one of them is not finite. ``scores`` are log-probabilities and entropies.
    """
    parts = dict(zip(("log-probabilities", "entropies"), scores, strict=True))
    parts |= {name: inputs.get(name) for name in _PARTS_OF_A_LOSS}
    found = []
    for name, value in parts.items():
        if value is not None:
            bad = ~torch.isfinite(value if value.ndim == 2 else value[:, None]).expand_as(mask)[mask]
            found += [f"{name} ({int(bad.sum())} of {bad.numel()} sampled tokens)"] * bool(bad.any())
    value = loss.item()
    whose = f"the loss is {value}" if not math.isfinite(value) else "the loss of another process is not finite"
    reason = f"; not finite are {', '.join(found)}" if found else ""
    raise NotFiniteError(f"{place}: {whose}{reason}; no weight has changed. {_AFTER_NOT_FINITE}")


def check_gradient(norm: float, step: int, taken: bool = False) -> None:
    """Raise `NotFiniteError` unless the gradient's global norm is finite; ``taken``: the step was taken already."""
    if not math.isfinite(norm):
        what = "DeepSpeed has taken the step, so the weights in memory are lost" if taken else "the step was not taken"
        raise NotFiniteError(f"step {step}: the norm of the gradient is {norm}; {what}. {_AFTER_NOT_FINITE}")


def checked_rewards(function: Any) -> Any:
    """The reward function with a check that names it when it returns what TRL cannot use or takes for "no reward".

    A reward of ``None`` stays: TRL reads it as "this function does not apply to this trajectory". What TRL awaits is
    still awaited. A reward model, and the name of one, are returned unchanged.
    """
    if not callable(function) or isinstance(function, torch.nn.Module):
        return function
    name = get_callable_name(function)

    def check(rewards: Any, count: int) -> list[float | None]:
        listed = rewards.tolist() if hasattr(rewards, "tolist") else rewards
        if not isinstance(listed, list | tuple) or len(listed) != count:
            raise HookError(f"reward function {name} returned {rewards!r}; return a list of {count} numbers")
        plain = [value.item() if hasattr(value, "item") else value for value in listed]
        for row, value in enumerate(plain):
            if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
                raise HookError(
                    f"reward function {name} returned {value!r} for trajectory {row}; return a finite number, or None "
                    "where it does not apply"
                )
        return plain

    def checked(*args: Any, **kwargs: Any) -> list[float | None]:
        return check(function(*args, **kwargs), len(kwargs["completions"]))

    async def awaited(*args: Any, **kwargs: Any) -> list[float | None]:
        return check(await function(*args, **kwargs), len(kwargs["completions"]))

    made = functools.wraps(function)(awaited if is_async_callable(function) else checked)
    made.__name__ = name
    return made
