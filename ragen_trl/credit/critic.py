"""The critic of the PPO variants: before every token it predicts what the rest of the episode will earn.

TRL has no critic. This one is the policy's backbone once more, with a value head, and it is fitted once to each
rollout, with its own optimizer and learning rate. What the policy does not train, such as the base under a LoRA, is
shared with it and not copied, so with LoRA a critic costs an adapter.
"""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType
from peft import PeftModel
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.nn.functional import pad
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from ragen_trl.algorithms.losses import value_loss
from ragen_trl.batching.batch import moved, sampled_mask, segment_batch, select_rows, turn_columns, whole_rows
from ragen_trl.batching.shared_prefixes import pass_order, share_prefixes
from ragen_trl.errors import NotFiniteError
from ragen_trl.policies.model_calls import additive_mask, unwrapped
from ragen_trl.system.atomic import reading, replacing
from ragen_trl.system.shards import divide_by_layer, equalise, is_divided, part, part_of, whole, whole_on_first
from ragen_trl.trajectory import Trajectory, Turn

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
_STEP_MEASURES = ("critic/value_loss", "critic/clip_fraction", "critic/grad_norm")
_FILLER = Trajectory((Turn((0,), (0,), (), observation="", reply="", reward=0.0),), seed=0)


class ValueNetwork(nn.Module):
    """Tokens in, one value per position out: the policy's backbone, and a head of zeros in float32.

    A copy and not a new adapter, because a warm-started policy reads with its own. ``shares_weights``: what the policy
    (unwrapped, perhaps a ``PeftModel``) does not train is shared with it; ``shares_prefixes``: tokens that rows begin
    with in common are computed once.
    """

    def __init__(self, policy: PreTrainedModel | PeftModel, shares_weights: bool, shares_prefixes: bool) -> None:
        super().__init__()
        original: PreTrainedModel = unwrapped(policy).base_model
        frozen = [value for value in original.parameters() if shares_weights and not value.requires_grad]
        self.backbone: PreTrainedModel = copy.deepcopy(original, {id(value): value for value in frozen})
        for mine, theirs in zip(self.backbone.parameters(), original.parameters(), strict=True):
            if is_divided(theirs) and mine is not theirs:  # of a part no copy is made
                mine.data = whole(theirs).clone()
        self.head = nn.Linear(original.config.get_text_config().hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.shares_prefixes = shares_prefixes

    def forward(self, rows: Mapping[str, Any]) -> torch.Tensor:
        """(B, T) float32 value of the state before each sampled token of rows (`batch.trajectory_batch`).

        At other tokens it means nothing.
        """
        (ids, attention), sampled = whole_rows(rows), sampled_mask(rows)
        width = sampled.shape[1]
        if not self.shares_prefixes:
            positions = (attention.cumsum(dim=1) - 1).clamp(min=0)
            return self._values(ids, attention, positions)[:, -width - 1 : -1]
        asked = pad(sampled, (ids.shape[1] - width, 0))
        packed = share_prefixes(ids, attention, asked, self.head.in_features)
        mask = additive_mask(self.backbone, packed.visible) if packed.branches else None
        values = self._values(packed.ids, mask, packed.positions)
        return packed.unpacked(values.flatten()[packed.predictors])[:, -width:]

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
    ``StarPOConfig``), ``shares_prefixes`` is the network's.

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
            self.network.to("cpu")
            equalise(own, device)
            divide_by_layer(self.network, GradientCheckpointingLayer, device)
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

        The first are in the columns of completions (`batch.turn_columns`) and 0 where nothing was sampled; column t
        has read only the tokens before t. The others, for truncated episodes, have read ``next_prompt_ids`` too, and
        are 0 without ``bootstrap``.
        """
        given = [_with_next_turn(one) if more else one for one, more in zip(trajectories, bootstrap, strict=True)]
        batch = self._rows(given)
        sampled = sampled_mask(batch)
        found = torch.zeros(sampled.shape, device=sampled.device)
        self.network.eval()
        for rows, values in self._passes(batch, range(len(sampled))):
            found[rows, : values.shape[1]] = values
        turn_ids = turn_columns(given).to(sampled.device)
        found = moved(found, sampled, turn_ids >= 0)
        played = torch.tensor([len(one.turns) for one in trajectories], device=sampled.device)
        is_next = turn_ids == played[:, None]
        width = turn_columns(trajectories).shape[1]
        return found.masked_fill(is_next, 0.0)[:, :width], found.masked_fill(~is_next, 0.0).sum(dim=1)

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
            targets: (L, T) returns, in the columns of `values`.
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
        batch = self._rows(trajectories)
        sampled, history = sampled_mask(batch), turn_columns(trajectories).to(self._accelerator.device) >= 0
        given = old_values.detach(), targets.detach(), mask.bool()
        columns = old_values, targets, mask = [moved(each.to(sampled.device), history, sampled) for each in given]
        if not (metrics := self._fit(targets[mask], old_values[mask])):
            return {}
        used = mask.any(dim=1).nonzero().flatten().tolist()  # filtered rows cost nothing
        self._optimizer.zero_grad(set_to_none=True)  # what an update that broke off has left
        self.network.train()
        parts = _parts(used, batch["trajectory"].tolist(), minibatches, epochs, seed)
        steps = [self._step(batch, rows, columns, clip) for rows in parts]
        means = torch.stack([step for step in steps if step is not None]).mean(dim=0)
        metrics |= dict(zip(_STEP_MEASURES, means.tolist(), strict=True))
        return metrics

    def save(self, path: Path) -> None:
        """Write weights and optimizer to a file, however the critic was divided; all processes call it."""
        moments = get_optimizer_state_dict(self.network, self._optimizer, options=_WHOLE)
        saved = {"weights": whole_on_first(self._trained), "optimizer": moments}
        if self._accelerator.is_main_process:
            with replacing(path) as partial_file:
                torch.save(saved, partial_file)

    def load(self, path: Path) -> None:
        """Read what ``save`` wrote, on every process."""
        with reading(path, "resume from another checkpoint"):
            saved = torch.load(path, map_location="cpu", weights_only=True)
            for name, value in self._trained.items():
                held = part(value)
                held.copy_(part_of(saved["weights"][name].to(held), value))
            set_optimizer_state_dict(self.network, self._optimizer, saved["optimizer"], options=_WHOLE)

    def _fit(self, targets: torch.Tensor, old_values: torch.Tensor) -> dict[str, float]:
        """How well the old values predict the targets, (tokens,) each, over all processes; empty if there are none."""
        columns = torch.stack([targets, old_values, targets - old_values]).float()  # (3, tokens)
        count = self.total(torch.tensor(float(columns.shape[1]), device=columns.device))
        if count == 0:
            return {}
        means = self.total(columns.sum(dim=1)) / count
        variances = self.total((columns - means[:, None]).square().sum(dim=1)) / count
        spread = variances[0] > 1e-10 * means[0].square().clamp(min=1.0)  # beyond rounding
        return {
            "critic/explained_variance": (1 - variances[2] / variances[0]).item() if spread else 0.0,
            "critic/value_mean": means[1].item(),
            "critic/return_mean": means[0].item(),
        }

    def _step(
        self, batch: dict[str, Any], rows: list[int], columns: Sequence[torch.Tensor], clip: float | None
    ) -> torch.Tensor | None:
        """One optimizer step on the rows of all processes; returns loss, clip fraction and gradient norm.

        ``columns``, (S, T') each, are old values, targets, and the mask of the tokens to learn from.
        """
        processes, mask = self._accelerator.num_processes, columns[-1]
        count = self.total(mask[rows].sum())
        if count == 0:
            return None
        sums = torch.zeros(2, device=mask.device)
        for chunk, values in self._passes(batch, rows):
            old_values, targets, used = (column[chunk, : values.shape[1]] for column in columns)
            loss, clipped = value_loss(values, old_values, targets, used, clip, count)
            loss.backward()
            sums += torch.stack([loss.detach(), clipped * used.sum() / count])
        for parameter in self.parameters:
            if parameter.grad is None:  # a process without rows adds zeros
                parameter.grad = torch.zeros_like(parameter)
            if is_divided(parameter):  # FSDP2 has averaged them
                parameter.grad.mul_(processes)
            elif processes > 1:
                torch.distributed.all_reduce(parameter.grad)
        norm = whole(nn.utils.clip_grad_norm_(self.parameters, self._max_grad_norm))
        if not bool(torch.isfinite(norm)):  # the same on all processes, as their gradients were summed
            self._optimizer.zero_grad(set_to_none=True)
            raise NotFiniteError(
                f"the norm of the critic's gradient is {norm.item()}; its step was not taken. Resume from the last "
                "checkpoint with a lower critic_learning_rate or max_grad_norm, or bound your rewards"
            )
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return torch.cat([self.total(sums), norm.reshape(1)])

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor over all processes."""
        total: torch.Tensor = self._accelerator.reduce(value, reduction="sum")
        return total

    def _rows(self, trajectories: Sequence[Trajectory]) -> dict[str, Any]:
        """The policy's rows of trajectories, on the device."""
        return segment_batch(trajectories, self._pad_id, self._accelerator.device)

    def _passes(self, batch: dict[str, Any], rows: Sequence[int]) -> Iterator[tuple[list[int], torch.Tensor]]:
        """The rows of each pass, and (rows, T') the values in the first columns of their completions.

        Rows in one pass begin alike or, where nothing is shared, have little padding. Passes that only other processes
        need have no row; their values depend on the weights nevertheless.
        """
        chosen = list(rows)
        ids, attention = (column[chosen] for column in whole_rows(batch))
        chosen = [chosen[place] for place in pass_order(ids, attention, self.network.shares_prefixes).tolist()]
        count = -(-len(chosen) // self._batch_size)
        if self.is_divided:  # every pass gathers weights
            most = torch.tensor(count, device=self._accelerator.device)
            torch.distributed.all_reduce(most, torch.distributed.ReduceOp.MAX)
            count = int(most)
        for start in range(0, count * self._batch_size, self._batch_size):
            chunk = chosen[start : start + self._batch_size]
            # Full precision instead of fp16, because its loss scaling is for the policy.
            half = self._accelerator.mixed_precision != "fp16"
            with self._accelerator.autocast() if half else nullcontext():
                values = self.network(select_rows(batch, chunk, len(chunk)) if chunk else self._rows([_FILLER]))
            yield chunk, values[: len(chunk)]


def _parts(
    rows: Sequence[int], owners: Sequence[int], minibatches: int, epochs: int, seed: int | Sequence[int]
) -> Iterator[list[int]]:
    """The rows of each step; a trajectory's rows stay together. Every process makes the same number of steps."""
    generator = np.random.default_rng(seed)
    units = [list(of_trajectory) for _, of_trajectory in groupby(rows, key=owners.__getitem__)]
    for _ in range(epochs):
        for part_of_epoch in np.array_split(generator.permutation(len(units)), minibatches):
            yield [row for index in part_of_epoch for row in units[index]]


def _with_next_turn(trajectory: Trajectory) -> Trajectory:
    """With the prompt that a limit prevented, and any one token after it, before which there is a value."""
    context = trajectory.next_context_ids
    prompt, reply = trajectory.next_prompt_ids, (0,)
    following = Turn(prompt, reply, (), observation="", reply="", reward=0.0, context_ids=context)
    return replace(trajectory, turns=(*trajectory.turns, following))
