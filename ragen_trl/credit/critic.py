"""The critic of the PPO variants: before every token it predicts what the rest of the episode will earn.

TRL has no critic. This one is fitted right after each rollout, with its own optimizer and learning rate. Where the
launch divides the policy, FSDP2 divides a critic that is a model of its own, under DeepSpeed as well, since an engine
of DeepSpeed's has one optimizer. An adapter, a thousandth of the model, stays whole.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from peft import PeftModel
from torch.nn.functional import pad
from transformers import PreTrainedModel, get_scheduler

from ragen_trl.algorithms.losses import value_loss
from ragen_trl.batching.batch import collate
from ragen_trl.batching.segments import SegmentLayout
from ragen_trl.credit.critic_networks import (
    AdapterNetwork,
    CriticError,
    SeparateNetwork,
    ValueNetwork,
    check_critic,
    write_critic,
)
from ragen_trl.errors import NotFiniteError
from ragen_trl.system.shards import clip_gradients, equalise, is_divided, load_whole_optimizer, whole_optimizer
from ragen_trl.trajectory import Trajectory, Turn

_DIVIDING = (DistributedType.DEEPSPEED, DistributedType.FSDP)
_OPTIMIZER, _SCHEDULE = "optimizer.pt", "scheduler.pt"
_STEP_MEASURES = ("critic/value_loss", "critic/clip_fraction", "critic/grad_norm")


class Critic:
    """A value function of token sequences, and the optimizer (AdamW) that fits it to returns.

    With data parallelism every process makes a critic and calls ``update`` as often as the others, with its own
    trajectories, in any number, also none. For a ``PeftModel`` the critic is a second adapter on the same base;
    otherwise it is a copy of the unwrapped policy, for which alone ``gradient_checkpointing`` counts. The learning rate
    rises over ``warmup`` rollouts and falls over ``updates``, the calls of ``end_rollout`` in the whole run. Gradients
    are scaled down to the global L2 norm ``max_grad_norm`` (``math.inf``: no limit). ``shares_prefixes``: tokens that
    rows begin with in common are computed once.

    Raises:
        CriticError: If the run is launched with Megatron-LM, or no critic can be made for the policy.
    """

    def __init__(
        self,
        policy: PreTrainedModel | PeftModel,
        accelerator: Accelerator,
        pad_id: int,
        batch_size: int,
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_grad_norm: float = 1.0,
        gradient_checkpointing: bool = False,
        schedule: str = "constant",
        warmup: int = 0,
        updates: int | None = None,
        shares_prefixes: bool = False,
    ) -> None:
        if accelerator.distributed_type == DistributedType.MEGATRON_LM:
            raise CriticError(
                "a critic does not work with MEGATRON_LM; launch with FSDP2 or DeepSpeed, or choose advantage='group' "
                "or 'gigpo', which need no critic"
            )
        self._accelerator = accelerator
        self._pad_id, self._batch_size, self._max_grad_norm = pad_id, batch_size, max_grad_norm
        self.network: ValueNetwork = self._make_network(policy, gradient_checkpointing)
        self.network.shares_prefixes = shares_prefixes
        self._optimizer = torch.optim.AdamW(
            self.network.parameters, lr=learning_rate, betas=betas, eps=eps, weight_decay=weight_decay
        )
        self._make_schedule = partial(
            get_scheduler, schedule, self._optimizer, num_warmup_steps=warmup, num_training_steps=updates
        )
        self._schedule = self._make_schedule()

    def begin_training(self) -> None:
        """Begin the schedule again, as TRL does with the policy's, and drop what a step that broke off has left."""
        self._optimizer.zero_grad(set_to_none=True)
        for group in self._optimizer.param_groups:
            group["lr"] = group["initial_lr"]
        self._schedule = self._make_schedule()

    def _make_network(self, policy: PreTrainedModel | PeftModel, gradient_checkpointing: bool) -> ValueNetwork:
        accelerator = self._accelerator
        device, divides = accelerator.device, accelerator.distributed_type in _DIVIDING
        if isinstance(policy, PeftModel):
            adapter = AdapterNetwork(policy, device)
            equalise(adapter.parameters, device)
            return adapter
        # A whole copy has to fit only where it stays whole.
        model = SeparateNetwork(policy, torch.device("cpu") if divides else device, gradient_checkpointing)
        equalise(model.parameters, device)  # the policy may still differ: DDP makes it equal only in training
        if divides:
            model.divide(device)
        return model

    @torch.no_grad()
    def values(
        self, trajectories: Sequence[Trajectory], bootstrap: Sequence[bool]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Value of the state before each token.

        Args:
            trajectories: L episodes.
            bootstrap: For each episode whether to value its end, as for a truncated episode.

        Returns:
            (L, T) float32, aligned with ``collate``. Column t has read only the tokens before t; column 0 and padding
            are 0. And (L,): the value after the last token and ``next_prompt_ids``, 0 without bootstrap.

        Raises:
            ValueError: If the numbers of bootstraps and trajectories differ.
        """
        layout = SegmentLayout(trajectories)
        lengths = [len(row.token_ids) for row in layout.rows]
        rows, ends = _with_next_prompts(layout, trajectories, bootstrap)
        device = self._accelerator.device
        values = torch.zeros(len(lengths), max(lengths, default=0), device=device)
        after = torch.zeros(len(trajectories), device=device)
        order = sorted(range(len(rows)), key=lambda index: self._place(rows[index].token_ids))
        with self.network.active(training=False):
            for chunk in self._passes(order):
                if not chunk:
                    self._fill()
                    continue
                batch = collate([rows[index] for index in chunk], self._pad_id)
                with self._autocast():
                    output = self.network(batch["input_ids"].to(device), batch["attention_mask"].to(device))
                for index, row_values in zip(chunk, output, strict=True):
                    if index < len(lengths):
                        values[index, 1 : lengths[index]] = row_values[: lengths[index] - 1]
                    if index in ends:
                        after[ends[index]] = row_values[len(rows[index].token_ids) - 1]
        return layout.join(values), after

    def update(
        self,
        trajectories: Sequence[Trajectory],
        targets: torch.Tensor,
        mask: torch.Tensor,
        old_values: torch.Tensor,
        clip: float | None,
        minibatches: int = 1,
        epochs: int = 1,
        seed: int = 0,
    ) -> dict[str, float]:
        """Fit the values to returns with ``epochs`` · ``minibatches`` steps of the clipped value loss, all at one rate.

        A minibatch's loss is the mean over the tokens of ``mask`` on all processes, however they are split into passes.
        Gradients are summed over processes here and not by DDP, which would wrap the base that critic and policy share.

        Args:
            trajectories: L episodes.
            targets: (L, T) returns, aligned with ``collate``.
            mask: (L, T), 1 where the critic is trained: at sampled tokens, or at one token of each turn.
            old_values: (L, T) the result of ``values`` before the update.
            clip: How far a value may move from the old one before the clip, in units of the return; ``None``: no clip.
            minibatches: Steps in one epoch. Each process splits its own trajectories into this number of parts.
            epochs: Passes over the trajectories.
            seed: Random seed of the order in which trajectories are split.

        Returns:
            Over all processes. Means over the steps: ``critic/value_loss``, ``critic/clip_fraction`` and
            ``critic/grad_norm`` (before clipping). Before the update: ``critic/explained_variance`` = 1 − Var(R − V) /
            Var(R) (0 if all returns are equal), ``critic/value_mean`` and ``critic/return_mean``. And the step's
            ``critic/learning_rate``. Empty, without an update, if ``mask`` is 0.

        Raises:
            ValueError: If shapes do not fit, or a target or old value under the mask is not finite.
            NotFiniteError: If a gradient is not finite; its step is not taken.
        """
        layout = SegmentLayout(trajectories)
        batch = self._batch(trajectories, layout, targets, mask, old_values)
        if not (metrics := self._fit(batch)):
            return {}
        used = batch["mask"].any(dim=1).nonzero().flatten().tolist()  # filtered rows cost nothing
        parts = _parts(used, layout.owners, minibatches, epochs, seed)
        with self.network.active(training=True):
            steps = [self._step(batch, rows, clip) for rows in parts]
        means = torch.stack([step for step in steps if step is not None]).mean(dim=0)
        metrics |= dict(zip(_STEP_MEASURES, means.tolist(), strict=True))
        metrics["critic/learning_rate"] = self._schedule.get_last_lr()[0]
        return metrics

    def end_rollout(self) -> None:
        """Move the learning rate along its schedule, also after a rollout that left nothing to fit."""
        with warnings.catch_warnings():  # PyTorch's, if that is the first one
            warnings.filterwarnings("ignore", "Detected call of `lr_scheduler.step", UserWarning)
            self._schedule.step()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write weights, optimizer and schedule, however the critic was divided. All processes call it together.

        Raises `CriticError` if the folder exists and holds something else.
        """
        state, optimizer = self.network.whole_state(), whole_optimizer(self._optimizer)
        if self._accelerator.is_main_process:
            write_critic(Path(folder), self._record(), partial(self._write, state, optimizer))

    def load(self, folder: str | os.PathLike[str]) -> None:
        """Read what ``save`` wrote, on every process; `CriticError` if it is missing, or of another policy or kind."""
        source = Path(folder)
        check_critic(source, self._record())
        self.network.load(source)
        saved = torch.load(source / _OPTIMIZER, map_location="cpu", weights_only=True)
        load_whole_optimizer(self._optimizer, saved)
        self._schedule.load_state_dict(torch.load(source / _SCHEDULE, weights_only=True))

    def _write(self, state: dict[str, torch.Tensor], optimizer: dict[str, Any], folder: Path) -> None:
        self.network.save(folder, state)
        torch.save(optimizer, folder / _OPTIMIZER)
        torch.save(self._schedule.state_dict(), folder / _SCHEDULE)

    def _record(self) -> dict[str, Any]:
        return {"kind": self.network.kind, "shapes": [list(value.shape) for value in self.network.parameters]}

    def _batch(
        self,
        trajectories: Sequence[Trajectory],
        layout: SegmentLayout,
        targets: torch.Tensor,
        mask: torch.Tensor,
        old_values: torch.Tensor,
    ) -> dict[str, torch.Tensor]:
        """Tensors of (S, T) on the device, of the rows that the critic reads; without columns if there are no rows."""
        device = self._accelerator.device
        shape = (len(trajectories), max((len(row.token_ids) for row in trajectories), default=0))
        given = {"targets": targets, "mask": mask, "old_values": old_values}
        for name, tensor in given.items():
            if tuple(tensor.shape) != shape:
                raise ValueError(f"{name} has shape {tuple(tensor.shape)}; collate gives these trajectories {shape}")
        batch = {name: layout.split(tensor.detach().to(device)) for name, tensor in given.items()}
        batch["mask"] = batch["mask"].bool()
        for name in ("targets", "old_values"):
            used = batch[name][batch["mask"]]
            if not bool(torch.isfinite(used).all()):
                value = used[~torch.isfinite(used)][0].item()
                raise ValueError(f"{name} holds {value} under the mask; check the rewards, or lower the learning rate")
        if trajectories:
            tokens = collate(layout.rows, self._pad_id)
            batch |= {name: tokens[name].to(device) for name in ("input_ids", "attention_mask")}
        return batch

    def _fit(self, batch: dict[str, torch.Tensor]) -> dict[str, float]:
        targets, old_values = (batch[name][batch["mask"]].float() for name in ("targets", "old_values"))
        columns = torch.stack([targets, old_values, targets - old_values])  # (3, tokens)
        count = self._total(torch.tensor(float(columns.shape[1]), device=columns.device))
        if count == 0:
            return {}
        means = self._total(columns.sum(dim=1)) / count
        variances = self._total((columns - means[:, None]).square().sum(dim=1)) / count
        spread = variances[0] > 1e-10 * means[0].square().clamp(min=1.0)  # beyond rounding
        return {
            "critic/explained_variance": (1 - variances[2] / variances[0]).item() if spread else 0.0,
            "critic/value_mean": means[1].item(),
            "critic/return_mean": means[0].item(),
        }

    def _step(self, batch: dict[str, torch.Tensor], rows: list[int], clip: float | None) -> torch.Tensor | None:
        """One optimizer step on the rows of all processes; returns loss, clip fraction and gradient norm."""
        mask = batch["mask"]
        count = self._total(mask[rows].sum() if rows else torch.zeros((), dtype=torch.long, device=mask.device))
        if count == 0:
            return None
        sums = torch.zeros(2, device=mask.device)
        lengths = batch["attention_mask"].sum(dim=1).tolist() if rows else []
        texts = [ids[:length] for ids, length in zip(batch["input_ids"].tolist(), lengths, strict=True)] if rows else []
        for chunk in self._passes(sorted(rows, key=lambda row: self._place(texts[row]))):
            if not chunk:
                (self._fill() * 0.0).backward()
                continue
            width = max(lengths[row] for row in chunk)
            part = {name: tensor[chunk, :width] for name, tensor in batch.items()}
            with self._autocast():
                output = self.network(part["input_ids"], part["attention_mask"])
            values = pad(output[:, :-1], (1, 0))  # from "after token t" to "before token t"
            loss, clipped = value_loss(values, part["old_values"], part["targets"], part["mask"], clip, count)
            loss.backward()
            sums += torch.stack([loss.detach(), clipped * part["mask"].sum() / count])
        self._sum_gradients()
        norm = clip_gradients(self.network.parameters, self._max_grad_norm)
        if not bool(torch.isfinite(norm)):  # the same on all processes, as their gradients were summed
            self._optimizer.zero_grad(set_to_none=True)
            raise NotFiniteError(
                f"the norm of the critic's gradient is {norm.item()}; its step was not taken. Resume from the last "
                "checkpoint with a lower critic_learning_rate or max_grad_norm, or bound your rewards"
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return torch.cat([self._total(sums), norm.reshape(1)])

    def _sum_gradients(self) -> None:
        """Sum gradients over processes; a process without rows adds zeros. FSDP2 has averaged those that it divides."""
        for parameter in self.network.parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            if is_divided(parameter):
                parameter.grad.mul_(self._accelerator.num_processes)
            elif self._accelerator.num_processes > 1:
                torch.distributed.all_reduce(parameter.grad)

    def _total(self, value: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = self._accelerator.reduce(value, reduction="sum")
        return total

    def _autocast(self) -> AbstractContextManager[Any]:
        """The trainer's mixed precision; full precision instead of fp16, because its loss scaling is for the policy."""
        return nullcontext() if self._accelerator.mixed_precision == "fp16" else self._accelerator.autocast()

    def _place(self, ids: Sequence[int]) -> tuple[int, ...]:
        """Orders rows so those in one pass begin alike or, where nothing is shared, have little padding."""
        return tuple(ids) if self.network.shares_prefixes else (len(ids),)

    def _passes(self, rows: list[int]) -> Iterator[list[int]]:
        """The rows of each pass, then none for the passes that only other processes need."""
        count = -(-len(rows) // self._batch_size)
        if self.network.gathers:
            most = torch.tensor(count, device=self._accelerator.device)
            torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
            count = int(most)
        for start in range(0, count * self._batch_size, self._batch_size):
            yield rows[start : start + self._batch_size]

    def _fill(self) -> torch.Tensor:
        """A pass over nothing, to take part in other processes' passes."""
        ids = torch.full((1, 2), self._pad_id, device=self._accelerator.device)
        with self._autocast():
            return self.network(ids, torch.ones_like(ids)).sum()


def _parts(rows: Sequence[int], owners: Sequence[int], minibatches: int, epochs: int, seed: int) -> Iterator[list[int]]:
    """The rows of each step; a trajectory's rows stay together. Every process makes the same number of steps."""
    generator, rows_of = torch.Generator().manual_seed(seed), dict[int, list[int]]()
    for row in rows:
        rows_of.setdefault(owners[row], []).append(row)
    units = list(rows_of.values())
    for _ in range(epochs):
        order = torch.randperm(len(units), generator=generator)
        for part in order.tensor_split(minibatches):
            yield [row for index in part.tolist() for row in units[index]]


def _with_next_prompts(
    layout: SegmentLayout, trajectories: Sequence[Trajectory], bootstrap: Sequence[bool]
) -> tuple[list[Trajectory], dict[int, int]]:
    """The rows, with the prompts that limits prevented; and of the rows that end with one their trajectories."""
    rows, ends = list(layout.rows), {}
    last = {owner: row for row, owner in enumerate(layout.owners)}
    for index, (trajectory, more) in enumerate(zip(trajectories, bootstrap, strict=True)):
        if not more:
            continue
        if trajectory.next_context_ids is None:
            ends[last[index]], row = index, rows[last[index]]
            rows[last[index]] = replace(row, turns=(*row.turns, _unanswered(trajectory.next_prompt_ids)))
        else:
            ends[len(rows)] = index
            rows.append(_opened(trajectory))
    return rows, ends


def _opened(trajectory: Trajectory) -> Trajectory:
    """The rebuilt context of the turn that a limit prevented, as a row of its own."""
    ids = (*(trajectory.next_context_ids or ()), *trajectory.next_prompt_ids)
    return replace(trajectory, turns=(_unanswered(ids),), next_prompt_ids=(), next_context_ids=None)


def _unanswered(prompt_ids: tuple[int, ...]) -> Turn:
    return Turn(prompt_ids, (), (), observation="", reply="", reward=0.0)
