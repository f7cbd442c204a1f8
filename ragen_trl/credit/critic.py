"""The critic of the PPO variants: before every token it predicts what the rest of the episode will earn.

TRL has no critic. This one is the policy's backbone once more, with a value head, and it is fitted right after each
rollout, with its own optimizer and learning rate. What the policy does not train, such as the base under a LoRA, is
shared with it and not copied, so with LoRA a critic costs an adapter.
"""

import copy
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from peft import PeftModel
from torch import nn
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from ragen_trl.algorithms.losses import value_loss
from ragen_trl.batching.batch import collate
from ragen_trl.batching.shared_prefixes import share_prefixes
from ragen_trl.errors import NotFiniteError, OptionError
from ragen_trl.policies.model_calls import additive_mask, unwrapped
from ragen_trl.system.atomic import replacing
from ragen_trl.system.shards import (
    clip_gradients,
    divide_by_layer,
    equalise,
    is_divided,
    load_whole_optimizer,
    part,
    part_of,
    whole,
    whole_on_first,
    whole_optimizer,
    whole_shape,
)
from ragen_trl.trajectory import Trajectory, Turn

_STEP_MEASURES = ("critic/value_loss", "critic/clip_fraction", "critic/grad_norm")


class ValueNetwork(nn.Module):
    """Tokens in, one value per position out: the policy's backbone, and a head of zeros in float32.

    A copy and not a new adapter, because a warm-started policy reads with its own. ``shares_weights``: what the policy
    (unwrapped, perhaps a ``PeftModel``) does not train is shared with it; ``shares_prefixes``: tokens that rows begin
    with in common are computed once. `OptionError` if the backbone has nothing to train.
    """

    def __init__(self, policy: PreTrainedModel | PeftModel, shares_weights: bool, shares_prefixes: bool) -> None:
        super().__init__()
        original: PreTrainedModel = unwrapped(policy).base_model
        frozen = [value for value in original.parameters() if shares_weights and not value.requires_grad]
        self.backbone: PreTrainedModel = copy.deepcopy(original, {id(value): value for value in frozen})
        for mine, theirs in zip(self.backbone.parameters(), original.parameters(), strict=True):
            if is_divided(theirs) and mine is not theirs:  # of a part no copy is made
                mine.data = whole(theirs).clone()
        if not any(value.requires_grad for value in self.backbone.parameters()):
            raise OptionError(
                f"{type(policy).__name__} has no trainable weights in its backbone, so there is no critic for it; "
                "train LoRA (peft_config=LoraConfig(...)), or choose advantage='group' or 'gigpo', which need none"
            )
        self.head = nn.Linear(original.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.shares_prefixes = shares_prefixes

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """(B, T) float32 value of the state after each token; at padding, which is on the right, it means nothing."""
        if not self.shares_prefixes:
            positions = torch.arange(input_ids.shape[1], device=input_ids.device).expand_as(input_ids)
            return self._values(input_ids, attention_mask, positions)
        # Every token is read to value what follows it, as it is read to predict that: a column more follows the last.
        ids, attended = pad(input_ids, (0, 1)), pad(attention_mask, (1, 0), value=1)
        rows = share_prefixes(ids, attended, attended, self.head.in_features)
        mask = additive_mask(self.backbone, rows.visible) if rows.branches else None
        values = self._values(rows.ids, mask, rows.positions)
        return rows.unpacked(values.flatten()[rows.predictors])[:, 1:]

    def _values(self, ids: torch.Tensor, mask: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor:
        output = self.backbone(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=False)
        hidden: torch.Tensor = output.last_hidden_state  # (rows, places, H)
        with torch.autocast(hidden.device.type, enabled=False):
            values: torch.Tensor = self.head(hidden.float()).squeeze(-1)
        return values


class Critic:
    """A value function of token sequences, and the optimizer (AdamW) that fits it to returns.

    With data parallelism every process makes a critic and calls ``update`` as often as the others, with its own
    trajectories, in any number, also none. FSDP2 divides a critic where it divides the policy; under DeepSpeed, whose
    engine has one optimizer, FSDP2 divides a critic of all weights.

    ``policy`` is the unwrapped one, ``args`` has the options of the critic, and of batches and AdamW (a
    ``StarPOConfig``), ``shares_prefixes`` is the network's. `OptionError` if the policy trains nothing below its head.

    Attributes:
        parameters: What is trained.
        is_divided: Whether the launch divides the network.
    """

    def __init__(
        self,
        policy: PreTrainedModel | PeftModel,
        accelerator: Accelerator,
        args: Any,
        pad_id: int,
        shares_prefixes: bool = False,
    ) -> None:
        launch, device = accelerator.distributed_type, accelerator.device
        whole_policy = launch == DistributedType.DEEPSPEED and not isinstance(policy, PeftModel)
        self.is_divided = launch == DistributedType.FSDP or whole_policy
        self._accelerator, self._pad_id = accelerator, pad_id
        self._batch_size, self._max_grad_norm = args.per_device_train_batch_size, args.max_grad_norm or math.inf
        self.network = ValueNetwork(policy, not self.is_divided, shares_prefixes)
        if args.gradient_checkpointing:
            # The name that all supported releases of Transformers know; the newest ones call it deprecated.
            self.network.backbone.gradient_checkpointing_enable({"use_reentrant": False})
        # The policies of processes may still differ: DDP makes them equal only in training.
        own = [value for value in self.network.parameters() if value.requires_grad or self.is_divided]
        if self.is_divided:  # a whole copy has to fit only where it stays whole
            self.network.backbone.to("cpu")
            self.network.head.to(device)
            equalise(own, device)
            divide_by_layer(self.network.backbone, GradientCheckpointingLayer, device)
        else:
            for value in (*own, *self.network.buffers()):  # what is shared the launch may still have to place
                value.data = value.data.to(device)
            equalise(own, device)
        self._trained = {name: value for name, value in self.network.named_parameters() if value.requires_grad}
        self.parameters = list(self._trained.values())
        self._optimizer = torch.optim.AdamW(
            self.parameters,
            lr=args.critic_learning_rate,
            betas=(args.adam_beta1, args.adam_beta2),
            eps=args.adam_epsilon,
            weight_decay=args.weight_decay,
        )

    @torch.no_grad()
    def values(
        self, trajectories: Sequence[Trajectory], bootstrap: Sequence[bool]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(L, T) float32 value of the state before each token, and (L,) the value after each episode's end.

        The first are aligned with ``collate`` and 0 where nothing was sampled; column t has read only the tokens before
        t. The others, for truncated episodes, have read ``next_prompt_ids`` too, and are 0 without ``bootstrap``.
        """
        segments, owners = _segments(trajectories)
        lengths = [len(row.token_ids) for row in segments]
        rows, ends = _with_next_prompts(segments, owners, trajectories, bootstrap)
        device = self._accelerator.device
        values = torch.zeros(len(lengths), max(lengths, default=0), device=device)
        after = torch.zeros(len(trajectories), device=device)
        self.network.eval()
        for chunk in self._passes(range(len(rows)), [row.token_ids for row in rows]):
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
        return _moved(values, segments, trajectories), after

    def update(
        self,
        trajectories: Sequence[Trajectory],
        targets: torch.Tensor,
        mask: torch.Tensor,
        old_values: torch.Tensor,
        clip: float | None,
        minibatches: int = 1,
        epochs: int = 1,
        seed: int | Sequence[int] = 0,
    ) -> dict[str, float]:
        """Fit the values to returns with ``epochs`` · ``minibatches`` steps of the clipped value loss.

        A minibatch's loss is the mean over the tokens of ``mask`` on all processes, however they are split into passes.
        Gradients are summed over processes here and not by DDP, which would wrap the base that critic and policy share.

        Args:
            trajectories: L episodes.
            targets: (L, T) returns, aligned with ``collate``.
            mask: (L, T), 1 where the critic is trained: at sampled tokens, or at one token of each turn.
            old_values: (L, T) the result of ``values`` before the update.
            clip: How far a value may move from the old one, in units of the return; ``None``: no clip.
            minibatches: Parts into which each process splits its own trajectories, in an order that ``seed`` fixes.
            epochs: Passes over the trajectories.
            seed: See there.

        Returns:
            Over all processes: means over the steps, the norm of gradients before clipping; how well the old values
            explained the returns, 1 − Var(R − V) / Var(R), 0 if all returns are equal. Empty, without an update, if
            ``mask`` is 0.

        Raises:
            NotFiniteError: If a gradient is not finite; its step is not taken.
        """
        (segments, owners), device = _segments(trajectories), self._accelerator.device
        given = {"targets": targets, "mask": mask.bool(), "old_values": old_values}
        batch = {  # (S, T') each
            name: _moved(tensor.detach().to(device), trajectories, segments) for name, tensor in given.items()
        }
        if trajectories:
            tokens = collate(segments, self._pad_id)
            batch |= {name: tokens[name].to(device) for name in ("input_ids", "attention_mask")}
        if not (metrics := self._fit(batch)):
            return {}
        used = batch["mask"].any(dim=1).nonzero().flatten().tolist()  # filtered rows cost nothing
        texts = [row.token_ids for row in segments]
        self._optimizer.zero_grad(set_to_none=True)  # what an update that broke off has left
        self.network.train()
        parts = _parts(used, owners, minibatches, epochs, seed)
        steps = [self._step(batch, self._passes(rows, texts), rows, clip) for rows in parts]
        means = torch.stack([step for step in steps if step is not None]).mean(dim=0)
        metrics |= dict(zip(_STEP_MEASURES, means.tolist(), strict=True))
        return metrics

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights and optimizer to a file, however the critic was divided; all processes call it."""
        saved = {"weights": whole_on_first(self._trained), "optimizer": whole_optimizer(self._optimizer)}
        if self._accelerator.is_main_process:
            with replacing(Path(path)) as partial_file:
                torch.save(saved, partial_file)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Read what ``save`` wrote, on every process; `OptionError` if there is none, or another policy's."""
        if not Path(path).is_file():
            raise OptionError(f"{path} is not there; resume from a checkpoint of a run with a critic, or start again")
        saved = torch.load(path, map_location="cpu", weights_only=True)
        shapes = {name: tuple(weight.shape) for name, weight in saved["weights"].items()}
        if shapes != {name: whole_shape(value) for name, value in self._trained.items()}:
            raise OptionError(
                f"{path} is the critic of another policy; resume with the model and the LoRA settings with which the "
                "run was started"
            )
        for name, value in self._trained.items():
            held = part(value)
            held.copy_(part_of(saved["weights"][name].to(held), value))
        load_whole_optimizer(self._optimizer, saved["optimizer"])

    def _fit(self, batch: dict[str, torch.Tensor]) -> dict[str, float]:
        """How well the old values predict the targets, over all processes; empty if there are none."""
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

    def _step(
        self, batch: dict[str, torch.Tensor], passes: Iterator[list[int]], rows: list[int], clip: float | None
    ) -> torch.Tensor | None:
        """One optimizer step on the rows of all processes; returns loss, clip fraction and gradient norm."""
        mask, processes = batch["mask"], self._accelerator.num_processes
        count = self._total(mask[rows].sum() if rows else torch.zeros((), dtype=torch.long, device=mask.device))
        if count == 0:
            return None
        sums = torch.zeros(2, device=mask.device)
        for chunk in passes:
            if not chunk:
                (self._fill() * 0.0).backward()
                continue
            width = int(batch["attention_mask"][chunk].sum(dim=1).max())
            of_pass = {name: tensor[chunk, :width] for name, tensor in batch.items()}
            with self._autocast():
                output = self.network(of_pass["input_ids"], of_pass["attention_mask"])
            values = pad(output[:, :-1], (1, 0))  # from "after token t" to "before token t"
            loss, clipped = value_loss(values, of_pass["old_values"], of_pass["targets"], of_pass["mask"], clip, count)
            loss.backward()
            sums += torch.stack([loss.detach(), clipped * of_pass["mask"].sum() / count])
        for parameter in self.parameters:
            if parameter.grad is None:  # a process without rows adds zeros
                parameter.grad = torch.zeros_like(parameter)
            if is_divided(parameter):  # FSDP2 has averaged them
                parameter.grad.mul_(processes)
            elif processes > 1:
                torch.distributed.all_reduce(parameter.grad)
        norm = clip_gradients(self.parameters, self._max_grad_norm)
        if not bool(torch.isfinite(norm)):  # the same on all processes, as their gradients were summed
            self._optimizer.zero_grad(set_to_none=True)
            raise NotFiniteError(
                f"the norm of the critic's gradient is {norm.item()}; its step was not taken. Resume from the last "
                "checkpoint with a lower critic_learning_rate or max_grad_norm, or bound your rewards"
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return torch.cat([self._total(sums), norm.reshape(1)])

    def _total(self, value: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = self._accelerator.reduce(value, reduction="sum")
        return total

    def _autocast(self) -> AbstractContextManager[Any]:
        """The trainer's mixed precision; full precision instead of fp16, because its loss scaling is for the policy."""
        return nullcontext() if self._accelerator.mixed_precision == "fp16" else self._accelerator.autocast()

    def _passes(self, rows: Sequence[int], texts: Sequence[tuple[int, ...]]) -> Iterator[list[int]]:
        """The rows of each pass, then none for the passes that only other processes need.

        Rows in one pass begin alike or, where nothing is shared, have little padding.
        """
        alike = self.network.shares_prefixes
        order = sorted(rows, key=lambda row: texts[row] if alike else (len(texts[row]),))
        count = -(-len(order) // self._batch_size)
        if self.is_divided:  # every pass gathers weights
            most = torch.tensor(count, device=self._accelerator.device)
            torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
            count = int(most)
        for start in range(0, count * self._batch_size, self._batch_size):
            yield order[start : start + self._batch_size]

    def _fill(self) -> torch.Tensor:
        """A pass over nothing, to take part in other processes' passes."""
        ids = torch.full((1, 2), self._pad_id, device=self._accelerator.device)
        with self._autocast():
            filler: torch.Tensor = self.network(ids, torch.ones_like(ids)).sum()
        return filler


def _parts(
    rows: Sequence[int], owners: Sequence[int], minibatches: int, epochs: int, seed: int | Sequence[int]
) -> Iterator[list[int]]:
    """The rows of each step; a trajectory's rows stay together. Every process makes the same number of steps."""
    generator, rows_of = np.random.default_rng(seed), dict[int, list[int]]()
    for row in rows:
        rows_of.setdefault(owners[row], []).append(row)
    units = list(rows_of.values())
    for _ in range(epochs):
        for part_of_epoch in np.array_split(generator.permutation(len(units)), minibatches):
            yield [row for index in part_of_epoch for row in units[index]]


def _segments(trajectories: Sequence[Trajectory]) -> tuple[list[Trajectory], list[int]]:
    """The rows that the critic reads, and the index of each row's trajectory."""
    owned = [(segment, owner) for owner, whole in enumerate(trajectories) for segment in whole.segments]
    return [segment for segment, _ in owned], [owner for _, owner in owned]


def _moved(values: torch.Tensor, rows: Sequence[Trajectory], others: Sequence[Trajectory]) -> torch.Tensor:
    """The values at sampled tokens, in ``collate``'s columns of other rows that hold the same tokens; 0 elsewhere."""
    theirs, ours = (collate(each, pad_id=0)["action_mask"].bool().to(values.device) for each in (rows, others))
    moved = values.new_zeros(ours.shape)
    moved[ours] = values[theirs]
    return moved


def _with_next_prompts(
    segments: Sequence[Trajectory],
    owners: Sequence[int],
    trajectories: Sequence[Trajectory],
    bootstrap: Sequence[bool],
) -> tuple[list[Trajectory], dict[int, int]]:
    """The rows, with the prompts that limits prevented; and of the rows that end with one their trajectories.

    A prompt that would have been read in a rebuilt context is a row of its own.
    """
    rows, ends = list(segments), {}
    last = {owner: row for row, owner in enumerate(owners)}
    for index, (trajectory, more) in enumerate(zip(trajectories, bootstrap, strict=True)):
        if not more:
            continue
        context = trajectory.next_context_ids
        unanswered = Turn((*(context or ()), *trajectory.next_prompt_ids), (), (), observation="", reply="", reward=0.0)
        if context is None:
            ends[last[index]] = index
            rows[last[index]] = replace(rows[last[index]], turns=(*rows[last[index]].turns, unanswered))
        else:
            ends[len(rows)] = index
            rows.append(replace(trajectory, turns=(unanswered,), next_prompt_ids=(), next_context_ids=None))
    return rows, ends
