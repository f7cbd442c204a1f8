r"""A\*-PO over whole trajectories, in the hooks of `StarPOTrainer`.

Stage 1 plays the reference policy (the model before training) from every start state and estimates V*. Stage 2 plays
the model and regresses its log-ratio to the reference on what an episode earned beyond V*.
"""

import json
import logging
from dataclasses import asdict
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object
from transformers import PreTrainedModel

from ragen_trl.algorithms.losses import kl_penalty, regression_loss
from ragen_trl.astar_po.reference_values import (
    NothingToLearnError,
    ReferenceSamples,
    ReferenceValues,
    Request,
    Sample,
    ValueCache,
    estimate_values,
    value_key,
)
from ragen_trl.batching.batch import sampled_mask, segment_batch
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.config.options import MannerOptions, TaskOptions, option_names
from ragen_trl.config.starpo import AStarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.tasks import reset_options
from ragen_trl.system.atomic import read_json, reading, write_atomically
from ragen_trl.trainer import StarPOTrainer
from ragen_trl.training.reference import Reference
from ragen_trl.training.self_check import measure_gap

logger = logging.getLogger(__name__)

_STATE = "astar_po.json"
_REFERENCE_PLAY = 7  # makes the reference's seeds differ from those of training and evaluation


class AStarPOTrainer(StarPOTrainer):
    r"""Train a language model as an agent by A\*-PO (arXiv 2505.20686), generalised to multi-turn trajectories.

    .. math:: \min_\pi \mathrm E\bigl(\beta_2 \Delta(\tau) - (R(\tau) - V^*(s_0))\bigr)^2, \quad
       \Delta = \sum_{t:\,m_t = 1} \log \pi(y_t) - \log \pi_{ref}(y_t)

    With LoRA the reference is the model with the adapter that training began with; there is no second model. Arguments
    and errors are as in `StarPOTrainer`; ``args`` is an ``AStarPOConfig``. ``train`` begins with stage 1, whose
    episodes go into ``args.value_cache`` batch by batch; a second call keeps V*.

    Raises:
        NothingToLearnError: By ``train``, see ``reference_values.estimate_values``.
    """

    _tag_names = ["trl", "ragen", "astar-po"]
    _name = "A*-PO"
    _paper = {"title": "Accelerating RL for LLM Reasoning with Optimal Advantage Regression", "id": "2505.20686"}

    config_class = AStarPOConfig
    reference: Reference  # type: ignore[assignment]
    _always_has_reference = True
    _reference_episodes = 0
    _reference_is_checked = False

    @cached_property
    def values(self) -> dict[int, ReferenceValues]:
        """V* by environment (its index in the run's list), once ``train`` or ``estimate_values`` has been called."""
        return {}

    # Stage 1

    def estimate_values(self) -> dict[int, ReferenceValues]:
        """Stage 1: V* of every start state under the present reference, by the environment's index in the run.

        At a refresh an environment keeps its values if the present reference earns the same in all episodes from each
        start state, or succeeds in none.
        """
        self.forget_sent_weights()  # vLLM has the policy's weights and needs the reference's
        path = Path(self.args.value_cache or Path(self.args.output_dir) / "values.sqlite")
        fingerprint, is_main = self.reference.fingerprint(), self.accelerator.is_main_process
        cache = ValueCache(path) if is_main else None
        try:
            for task, seeds in self._tasks.starts().items():
                key = value_key(self._value_settings(task), fingerprint)
                known = dict(gather_object(list(cache.read(key).items()) if cache else []))
                store = partial(cache.add, key) if cache else lambda samples: None
                self._estimate(task, seeds, known, store)
        finally:
            self.forget_sent_weights()  # now it needs the policy's
        return self.values

    def _estimate(self, task: int, seeds: list[int], known: dict[Request, Sample], store: Any) -> None:
        args, before, name = self.args, self.values.get(task), self._tasks.names[task]
        at_once = args.per_device_train_batch_size * args.steps_per_generation * self.accelerator.num_processes
        samples = ReferenceSamples(partial(self._play_reference, task), known, at_once, store)
        unit = before.return_range if before else args.return_range  # a refresh keeps the unit of β₁, β₂, advantages
        try:
            self.values[task] = estimate_values(seeds, samples, args, unit, progress=not args.disable_tqdm)
        except NothingToLearnError as error:
            if before is None:
                raise
            logger.warning("step %d, %s keeps its V*: %s", self.state.global_step + 1, name, error)
            self._reference_episodes += samples.num_played
            return
        self._reference_episodes += self.values[task].episodes  # cached ones count, too: some run played them

    def _value_settings(self, task: int) -> dict[str, Any]:
        """What V* of an environment depends on beside the reference and the start seed.

        An environment that a function makes is known by its name and its place in the run alone.
        """
        args, spec = self.args, self._tasks.specs[task]
        played = {*option_names(TaskOptions), *option_names(MannerOptions), "temperature", "top_p", "top_k"}
        return {
            **{name: getattr(args, name) for name in (*played, "reward_version")},
            "env": spec.label if isinstance(spec.env, str) else f"{spec.label} {task}",
            "env_kwargs": dict(spec.kwargs),
            "rewards": list(zip(self.reward_func_names, self.reward_weights.tolist(), strict=True)),
            "columns": self._tasks.digest_of_columns(task),
            "force_reply_prefix": self._envs.take([spec])[0].reply_prefix if args.force_reply_prefix else "",
            "chat_template": str(self.tokenizer.chat_template),
        }

    def _play_reference(self, task: int, requests: list[Request]) -> list[Sample]:
        """Play the reference on all processes together; its outcomes do not depend on the seed of a run."""
        rows = [self._tasks.row(task, seed) for seed, _ in requests]
        starts = [
            Start.drawn(seed, (seed, index, _REFERENCE_PLAY), reset_options(row))
            for (seed, index), row in zip(requests, rows, strict=True)
        ]
        with self.reference.model() as model:
            rollout, _ = self._play_together(rows, starts)
            if not self._reference_is_checked:  # by one pass of rows from all over, before hours of play
                self._reference_is_checked = True
                played, count = rollout.trajectories, self.args.per_device_train_batch_size
                some, device = played[:: max(1, len(played) // count)][:count], self.accelerator.device
                batch = segment_batch(some, self.tokenizer.pad_token_id, device)
                self.check_gap_to_sampler(measure_gap(self.score(model, batch)[0], batch, self._sampler_slack))
        outcomes = zip(rollout.returns.tolist(), rollout.summaries, strict=True)
        return [Sample(paid, summary.success) for paid, summary in outcomes][: len(requests)]

    # Stage 2: the hooks

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        """(B,) what an episode earned beyond V*, in units of the return range: A* up to the error of V*."""
        returns = rollout.returns
        known = [self.values[summary.task] for summary in rollout.summaries]
        of_starts = [values.starts[one.seed] for values, one in zip(known, rollout.summaries, strict=True)]
        units = returns.new_tensor([values.return_range for values in known])
        soft_values = returns.new_tensor(of_starts)
        advantages = (returns - soft_values) / units
        played = advantages[~returns.isnan()]  # an environment that failed gave no return
        figures = {
            "value": (soft_values / units).mean().item(),
            "advantage": played.mean().item(),
            "advantage_std": played.std(correction=0).item(),
            "reference_episodes": self._reference_episodes,
            "trainable_starts": sum(len(values.trainable) for values in self.values.values()),
        }
        self.record("train", {f"astar/{name}": value for name, value in figures.items()})
        return advantages.nan_to_num(nan=0.0)

    def policy_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """The regression, never negative; plus ``kl_coef`` times the KL to the reference (k3)."""
        args, mask, advantages = self.args, sampled_mask(inputs), inputs["advantages"]
        logprobs, _ = self.score(model, inputs)
        reference, shares = inputs["ref_per_token_logps"], inputs["trajectory_share"]
        loss, log_ratios, residuals = regression_loss(
            logprobs,
            reference,
            mask,
            advantages,
            beta2=args.beta2,
            scale=args.loss_scale,
            normaliser=inputs["step_trajectories"],
            parts=(inputs["others_log_ratio"], shares) if "others_log_ratio" in inputs else None,
        )
        figures = {"log_ratio": log_ratios, "residual": residuals, "residual_squared": residuals.square()}
        self.record_means({f"astar/{name}": of_row for name, of_row in figures.items()}, shares)
        if args.kl_coef:
            # Masked before the exponential: at environment tokens the policies may differ so much that it overflows.
            kl = kl_penalty(logprobs.masked_fill(~mask, 0.0), reference.masked_fill(~mask, 0.0), "k3")
            unit = 1.0 if args.loss_scale == "unit" else 2 * args.beta2
            loss = loss + unit * args.kl_coef * (kl.sum() / inputs["step_tokens"])
        return loss

    # Refreshes, start states and checkpoints

    def before_training(self) -> None:
        """Stage 1, unless a checkpoint had V* of all start states; a run made longer can have further ones."""
        known = {(task, seed) for task, values in self.values.items() for seed in values.starts}
        if any((task, seed) not in known for task, seeds in self._tasks.starts().items() for seed in seeds):
            self._reference_episodes -= sum(values.episodes for values in self.values.values())  # they are asked again
            self.estimate_values()

    def training_batch(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """As in `StarPOTrainer`, after a refresh if one is due."""
        step, every = self.state.global_step, self.args.refresh_steps
        if every and step and step % every == 0:
            self.reference.reanchor()
            self.estimate_values()
        return super().training_batch(rows)

    def _play(self, rows: list[dict[str, Any]], attempt: int = 0) -> RolloutBatch:
        """As in `StarPOTrainer`, but for start states from which the reference's returns are equal others are played.

        They are of the same environment, drawn by what all processes and a resumed run know.
        """
        found = []
        for place, row in enumerate(rows, self.accelerator.process_index * len(rows)):
            task, seed = row["env_index"], row["seed"]
            values = self.values[task]
            if seed not in values.trainable:
                group = place // self.num_generations
                entropy = [self.args.seed, self.state.global_step, 0, group, seed]
                row = self._tasks.row(task, int(np.random.default_rng(entropy).choice(values.trainable)))
            found.append(row)
        return super()._play(found, attempt)

    def _add_scores(self, batch: dict[str, Any]) -> None:
        self._add_reference_scores(batch)  # its loss reads no other
        shares = batch["trajectory_share"]
        if self._total(((shares > 0) & (shares < 1)).sum()) > 0:  # a trajectory in several rows, on any process
            # Not the sampler's, which may be vLLM, a merged copy in half precision, or a rollout hook's own.
            rows_a_pass = self.args.per_device_train_batch_size
            now = self._scorer(self.model, batch, rows_a_pass, entropies=False).logprobs
            differences = (now - batch["ref_per_token_logps"]).masked_fill(~sampled_mask(batch), 0.0)
            sums, owners = differences.sum(dim=1), batch["trajectory"]
            totals = sums.new_zeros(int(owners.max()) + 1).index_add(0, owners, sums)
            batch["others_log_ratio"] = totals[owners] - sums

    def save_algorithm_state(self, folder: Path) -> None:
        """Write V*, its key, and the reference if a refresh changed it or may do so, before a rollback."""
        if self.reference.reanchored or self.args.refresh_steps:
            self.reference.save(folder / "reference")
        state = {
            "key": self._key_of_values(),
            "reference_episodes": self._reference_episodes,
            "values": {task: asdict(values) for task, values in self.values.items()},
        }
        if self.accelerator.is_main_process:
            write_atomically(folder / _STATE, json.dumps(state))

    def _key_of_values(self) -> str:
        """Equal where all that V* depends on is equal: the reference, every environment and reward, β₁ and its unit."""
        settings = {str(task): self._value_settings(task) for task in self._tasks.starts()}
        units = {"beta1": self.args.beta1, "return_range": self.args.return_range}
        return value_key(settings | units, self.reference.fingerprint())

    def load_algorithm_state(self, folder: Path) -> None:
        """Read what `save_algorithm_state` wrote.

        `OptionError` if the reference is another one, or V* is of other settings, such as another reward.
        """
        state = read_json(folder / _STATE, dict, "resume from another checkpoint")
        if (folder / "reference").exists():
            self.reference.load(folder / "reference")
        if self._key_of_values() != state.get("key"):
            raise OptionError(
                f"{folder} has V* of another reference or other settings, such as rewards; make the trainer as the run "
                "began, with the model that it began with and not with one of its checkpoints"
            )
        with reading(folder / _STATE, "resume from another checkpoint"):
            episodes = int(state["reference_episodes"])
            values = {int(task): ReferenceValues.from_dict(known) for task, known in state["values"].items()}
        self._reference_episodes, self.values = episodes, values
