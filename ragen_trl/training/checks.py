"""A trainer's arguments, its launch, and what its hooks return: checked at once, so a message names what is wrong."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import torch
from transformers import PreTrainedModel
from trl.trainer.utils import get_callable_name, is_async_callable

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import NotFiniteError, OptionError, UserError
from ragen_trl.rollout.interfaces import Start
from ragen_trl.system.processes import launched
from ragen_trl.training.launch import use_one_device
from ragen_trl.trajectory import Trajectory

RewardFunction: TypeAlias = str | PreTrainedModel | Callable[..., Any]
"""As in TRL: a function, also an asynchronous one; a reward model; or the path or hub id of one."""

_AFTER_NOT_FINITE = (
    "Resume from the last checkpoint with a lower learning_rate, or in bf16 or float32 if you train in fp16. Against "
    "ratios that overflow make fewer updates on a rollout (num_iterations, steps_per_generation) or lower delta; clamp "
    "advantages of your own"
)


def own_arguments(kind: Any, args: Any) -> StarPOConfig:
    """A copy of a trainer's configuration; `OptionError` if it is none, or of another trainer."""
    if not isinstance(args, kind.config_class):
        given, wanted = f"a {type(args).__name__}", kind.config_class.__name__
        raise OptionError(f"args is {given}; pass a {wanted}, which says where the run goes and how it plays")
    if args._trainer not in (None, *(one.__name__ for one in kind.__mro__)):
        raise OptionError(
            f"args is a {type(args).__name__}, most of whose options {kind.__name__} does not read; make a "
            f"{args._trainer} with it"
        )
    own = copy.copy(args)
    for name, value in vars(args).items():
        if isinstance(value, dict | list):
            setattr(own, name, copy.deepcopy(value))
    use_one_device(own)
    return own


def environment_return(episode_return: list[float], **_: Any) -> list[float]:
    """The first reward function that TRL gets: each trajectory's undiscounted return, format penalties included."""
    return episode_return


def finite_rewards(function: RewardFunction) -> RewardFunction:
    """The reward function, with a check that names it: a NaN in its list TRL would take for ``None``, no score."""
    if isinstance(function, str | torch.nn.Module):
        return function
    name = get_callable_name(function)

    def checked(rewards: Any, trajectories: Sequence[Trajectory]) -> list[Any]:
        listed = list(rewards)
        for reward, one in zip(listed, trajectories, strict=False):  # TRL counts them
            if reward is not None and not math.isfinite(reward):
                raise UserError(
                    f"reward function {name} returned {reward} for a trajectory of seed {one.seed} with return "
                    f"{one.episode_return:g}; return a finite number, or None for no score"
                )
        return listed

    def called(**columns: Any) -> list[Any]:
        return checked(function(**columns), columns["trajectory"])

    async def awaited(**columns: Any) -> list[Any]:
        return checked(await function(**columns), columns["trajectory"])

    made = awaited if is_async_callable(function) else called
    made.__name__ = name
    return made


def check_launch(trainer: Any) -> None:
    """Refuse a policy that cannot learn, processes that cannot train together, ``merge_lora`` of divided weights."""
    if not any(value.requires_grad for value in trainer.model.parameters()):
        raise OptionError(
            "no parameter of the model is trainable, so a run would learn nothing; load an adapter with "
            "is_trainable=True, or call requires_grad_(True)"
        )
    if launched() > trainer.accelerator.num_processes:
        raise OptionError(
            f"launched as {launched()} processes that are not connected: each would train alone, "
            "into the same folder; on the CPU set use_cpu=True and launch with torchrun"
        )
    if trainer.is_fsdp_enabled and trainer.accelerator.state.fsdp_plugin.fsdp_version != 2:
        raise OptionError(
            "fsdp_version is 1, whose weights cannot be kept whole for a rollout; launch with fsdp_version 2"
        )
    if trainer.args.merge_lora and (trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled):
        held = trainer.accelerator.distributed_type.value
        raise OptionError(f"merge_lora is True, but {held} holds the weights that it changes; leave it off, or use DDP")


def check_played(trajectories: Any, starts: Sequence[Start]) -> None:
    """Raise `UserError` unless ``rollout`` returned one trajectory per start, in their order."""
    played, asked = [one.seed for one in trajectories], [start.seed for start in starts]
    if played != asked:
        raise UserError(f"rollout returned seeds {played}; return one trajectory per start, in their order: {asked}")


def check_failures(trajectories: Sequence[Any], failures: float, count: int) -> None:
    """Raise `UserError`, on all processes together, if all ``count`` episodes of a rollout failed."""
    if failures < count:
        return
    reason = str(trajectories[0].turns[-1].info["error"]).strip() if trajectories else "see the other processes"
    raise UserError(
        f"all {count} episodes failed in the environment (one that has to stay in the thread that made it needs "
        f"env_workers=0), first with: {reason}"
    )


def checked_groups(groups: Any, count: int, most: int) -> list[int]:
    """What ``select_groups`` returned (a list, a tensor or an array), as a list.

    `UserError` if these are not ascending indices of ``count`` groups, or more than ``most``, which micro-batches hold.
    """
    listed = list(groups.tolist() if hasattr(groups, "tolist") else groups)
    if any(isinstance(group, bool) for group in listed) or listed != sorted(set(listed) & set(range(count))):
        raise UserError(
            f"select_groups returned {listed}; return ascending, different indices of groups, 0 to {count - 1}, no mask"
        )
    if len(listed) > most:
        raise UserError(
            f"select_groups returned {len(listed)} groups of {count}, and a rollout has {most}, which fill the passes "
            "of an update; return no more than args.groups_per_update where other rollouts follow (max_refills)"
        )
    return [int(group) for group in listed]


def check_advantages(advantages: Any, trajectories: int, tokens: tuple[int, int]) -> None:
    """Raise `UserError` unless ``advantages`` returned finite numbers: (B,) of all processes, or (L, T) of this one."""
    if getattr(advantages, "shape", None) not in ((trajectories,), tokens):
        raise UserError(
            f"advantages is a {type(advantages).__name__} of shape {tuple(getattr(advantages, 'shape', ()))}; give one "
            f"for each of the {trajectories} trajectories, or {tokens} for every completion token of this process"
        )
    if not bool(torch.isfinite(advantages).all()):
        raise UserError("advantages are NaN or infinite; one is enough to turn every weight of the model into NaN")


def check_loss(loss: Any, scores: Sequence[Any]) -> None:
    """Raise `UserError` unless ``policy_loss`` had tokens scored, and returned one number."""
    if not scores:
        raise UserError(
            "policy_loss asked for no log-probabilities; take them from self.score(model, inputs), or call "
            "super().policy_loss(model, inputs)"
        )
    if not isinstance(loss, torch.Tensor) or loss.ndim != 0:
        raise UserError(f"policy_loss returned {loss!r}; return a tensor with one number, the sum over the micro-batch")


def raise_not_finite(loss: torch.Tensor, place: str) -> NoReturn:
    """Raise `NotFiniteError`; all processes do, as soon as the loss of one of them is not finite."""
    value = loss.item()
    whose = f"the loss is {value}" if not math.isfinite(value) else "the loss of another process is not finite"
    raise NotFiniteError(f"{place}: {whose}; no weight has changed. {_AFTER_NOT_FINITE}")


def check_gradient(norm: float, step: int, taken: bool = False) -> None:
    """Raise `NotFiniteError` unless the gradient's global norm is finite; ``taken``: the step was taken already."""
    if not math.isfinite(norm):
        what = "DeepSpeed has taken the step, so the weights in memory are lost" if taken else "the step was not taken"
        raise NotFiniteError(f"step {step}: the norm of the gradient is {norm}; {what}. {_AFTER_NOT_FINITE}")
