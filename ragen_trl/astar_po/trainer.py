r"""A\*-PO over whole trajectories, in the hooks of `StarPOTrainer`.

Stage 1 plays the reference policy (the model before training) from every start state and estimates V*. Stage 2 plays
the model and regresses its log-ratio to the reference on what an episode earned beyond V*.
"""

import json
import logging
import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedModel

from ragen_trl.algorithms.losses import sums_of_others
from ragen_trl.algorithms.soft_values import is_stale
from ragen_trl.astar_po.exchange import StartState, exchanged
from ragen_trl.astar_po.reference_play import Processes, ReferencePlayer, Request, reference_start
from ragen_trl.astar_po.reference_values import (
    Accuracy,
    NothingToLearnError,
    ReferenceNeverSucceedsError,
    ReferenceValues,
    estimate_values,
)
from ragen_trl.astar_po.regression import in_return_ranges, regress
from ragen_trl.astar_po.value_cache import ValueCache, ValueKey, value_key
from ragen_trl.batching.batch import sampled_mask
from ragen_trl.batching.returns import raw_returns
from ragen_trl.batching.rollout_batch import RolloutBatch, TrajectorySummary
from ragen_trl.batching.segments import segment_batch
from ragen_trl.config.starpo import AStarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.system.atomic import write_atomically
from ragen_trl.trainer import StarPOTrainer
from ragen_trl.training.checks import check_played
from ragen_trl.training.reference import Reference, ReferenceWeightsError
from ragen_trl.training.self_check import measure_gap
from ragen_trl.trajectory import Trajectory

logger = logging.getLogger(__name__)

_STATE = "astar_po.json"


class AStarPOTrainer(StarPOTrainer):
    r"""Train a language model as an agent by A\*-PO (arXiv 2505.20686), generalised to multi-turn trajectories.

    .. math:: \min_\pi \mathrm E\bigl(\beta_2 \Delta(\tau) - (R(\tau) - V^*(s_0))\bigr)^2, \quad
       \Delta = \sum_{t:\,m_t = 1} \log \pi(y_t) - \log \pi_{ref}(y_t)

    With LoRA the reference is the model without its adapter, or with the adapter that training began with; there is no
    second model. Arguments and errors are as in `StarPOTrainer`; ``args`` is an ``AStarPOConfig``. ``train``
    begins with stage 1, whose episodes go into ``args.value_cache`` batch by batch.

    Attributes:
        reference: The frozen policy.
        values: V* by environment (its index in the run's list), once ``train`` or ``estimate_values`` has been called.

    Raises:
        ReferenceNeverSucceedsError: By ``train``, if the first reference never succeeds.
        NothingToLearnError: By ``train``, if from every start state all episodes of the first one earn the same.
    """

    _tag_names = ["trl", "ragen", "astar-po"]
    _name = "A*-PO"
    _paper = {
        "title": "Accelerating RL for LLM Reasoning with Optimal Advantage Regression",
        "id": "2505.20686",
        "citation": """\
@article{brantley2025accelerating,
    title        = {{Accelerating RL for LLM Reasoning with Optimal Advantage Regression}},
    author       = {Kianté Brantley and others},
    year         = 2025,
    eprint       = {arXiv:2505.20686},
}""",
    }

    reference: Reference  # type: ignore[assignment]  # here there always is one

    def __init__(self, model: Any, env: Any = None, args: Any = None, **kwargs: Any) -> None:
        if args is not None and not isinstance(args, AStarPOConfig):
            raise ValueError(f"args is a {type(args).__name__}; A*-PO takes an AStarPOConfig")
        super().__init__(model, env, args, **kwargs)
        self._tasks.check_rows_agree()
        self.reference = Reference(self.accelerator.unwrap_model(self.model))
        self.values: dict[int, ReferenceValues] = {}
        self._reference_episodes = 0
        self._reference_is_checked = False
        self._last_refresh = 0
        # The columns of `in_return_ranges` of the last rollouts.
        self._window: deque[tuple[torch.Tensor, ...]] = deque(maxlen=self.args.stale_window)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As in `StarPOTrainer`. V* of an earlier call stays; the next refresh is counted from this one's begin."""
        self._last_refresh = 0
        self._window.clear()
        return super().train(*args, **kwargs)

    # Stage 1

    def estimate_values(self, progress: bool | None = None) -> dict[int, ReferenceValues]:
        """Stage 1: V* of every start state under the present reference, by the environment's index in the run.

        At a refresh an environment keeps its values if the present reference earns the same in all episodes from each
        start state, or succeeds in none. ``progress`` unset shows a bar unless ``args.disable_tqdm``.
        """
        if self.use_vllm:
            self.reference.check_sendable()
        self.forget_sent_weights()  # vLLM has the policy's weights and needs the reference's
        path = Path(self.args.value_cache or Path(self.args.output_dir) / "values.sqlite")
        fingerprint = self.reference.fingerprint()
        cache = ValueCache(path) if self.accelerator.is_main_process else None
        progress = not self.args.disable_tqdm if progress is None else progress
        try:
            for task, seeds in self._tasks.starts().items():
                self._estimate(task, seeds, cache, fingerprint, progress)
        finally:
            self.forget_sent_weights()  # now it needs the policy's
            if cache is not None:
                cache.close()
        return self.values

    def _estimate(
        self, task: int, seeds: list[int], cache: ValueCache | None, fingerprint: str, progress: bool
    ) -> None:
        args, known, spec = self.args, self.values.get(task), self._tasks.specs[task]
        processes = Processes(self.accelerator.process_index, self.accelerator.num_processes, gather_object)
        accuracy = Accuracy(
            args.beta1,
            known.return_range if known else args.return_range,  # a refresh keeps the unit of β₁, β₂ and advantages
            args.reference_samples,
            args.max_reference_samples,
            args.value_std_error,
        )
        key = self._value_key(task, fingerprint)
        size = args.per_device_train_batch_size * args.steps_per_generation
        player = ReferencePlayer(partial(self._play_reference, task), size, cache, key, processes)
        try:
            self.values[task] = estimate_values(seeds, player, accuracy, progress)
            self._reference_episodes += self.values[task].episodes  # cached ones count, too: some run played them
            self._tell_of_cached_rewards(task)
        except (NothingToLearnError, ReferenceNeverSucceedsError) as error:
            if known is None:
                raise
            reason = str(error)
            if isinstance(error, ReferenceNeverSucceedsError):  # whose advice is for stage 1
                reason = (
                    "no episode of the policy as it is now succeeded; it has unlearnt the task, so resume from an "
                    "earlier checkpoint with a lower learning_rate"
                )
            logger.warning("step %d, %s keeps its V*: %s", self.state.global_step + 1, spec.name, reason)
            self._reference_episodes += player.num_played

    def _tell_of_cached_rewards(self, task: int) -> None:
        """Warn of environments from outside: the cache's key has only their name, and their rewards may differ now."""
        spec, values = self._tasks.specs[task], self.values[task]
        named = spec.env.removeprefix("ragen_envs:") if isinstance(spec.env, str) else ""
        # A catalogue in a file and a store behind an address change without their names.
        elsewhere = any(isinstance(value, str) and "/" in value for value in spec.kwargs.values())
        is_ours = named.startswith("ragen/") and not self._extra and not elsewhere
        if self.accelerator.is_main_process and values.played < values.episodes and not is_ours:
            logger.warning(
                "%d of the %d episodes behind V* of %s are from the cache, with what it paid when they were played; "
                "set another reward_version whenever you change what an environment or a reward function pays",
                *(values.episodes - values.played, values.episodes, spec.name),
            )

    def _value_key(self, task: int, fingerprint: str) -> ValueKey:
        args, spec = self.args, self._tasks.specs[task]
        rewards = list(zip(self.reward_func_names, self.reward_weights.tolist(), strict=True))
        prefix = self._envs.take([spec])[0].reply_prefix if args.force_reply_prefix else ""
        columns = self._tasks.digest_of_columns(task) if self._extra else ""
        return value_key(args, spec, task, rewards, prefix, str(self.tokenizer.chat_template), fingerprint, columns)

    def _play_reference(self, task: int, requests: list[Request]) -> list[tuple[float, bool]]:
        played, parts = [], torch.zeros(4, device=self.accelerator.device)
        # Weights are gathered, and a vLLM server asked, by all processes together.
        if requests or self.use_vllm or self.accelerator.num_processes > 1:
            with self.reference.model(), self.unwrapped_model() as model:
                played = self._played_by(model, task, requests)
                if not self._reference_is_checked:
                    parts = self._gap_to_reference(model, played)
        if not self._reference_is_checked:  # before hours of play
            self._reference_is_checked = True
            self.check_gap_to_sampler(parts)
        returns = self._raw_returns(task, played) if played else []
        # A failure has no return: NaN makes all processes refuse it together, before anything is stored.
        known = [math.nan if row.limit in FAILURES else value for row, value in zip(played, returns, strict=True)]
        return list(zip(known, [trajectory.success for trajectory in played], strict=True))

    def _raw_returns(self, task: int, played: Sequence[Trajectory]) -> list[float]:
        """The weighted sum of all reward functions, as in TRL's loop, which does not see these episodes."""
        columns = self._tasks.columns((task, one.seed) for one in played)
        decode = partial(self.tokenizer.decode, skip_special_tokens=True)
        return raw_returns(played, self.reward_funcs, self.reward_weights.tolist(), decode, columns)

    def _played_by(self, model: PreTrainedModel, task: int, requests: list[Request]) -> list[Trajectory]:
        starts = [reference_start(*request) for request in requests]
        specs = [self._tasks.specs[task]] * len(requests)
        policy = self.policy(self.temperature, model)
        played = self.rollout(starts, self._envs.take(specs), policy)
        check_played(played, starts, strict=False)
        failed = [row for row, episode in enumerate(played) if episode.limit in FAILURES]
        if failed and not self.use_vllm:  # once more with the same seeds: the environment may work again
            again = self.rollout([starts[row] for row in failed], self._envs.take(specs[: len(failed)]), policy)
            played = [again.pop(0) if row in failed else episode for row, episode in enumerate(played)]
        return played

    def _gap_to_reference(self, model: PreTrainedModel, played: list[Trajectory]) -> torch.Tensor:
        """(4,) how far the trainer is from the sampler on one pass of rows, taken from all over what was played."""
        count = self.args.per_device_train_batch_size
        rows = played[:: max(1, len(played) // count)][:count]
        if not rows:
            return torch.zeros(4, device=self.accelerator.device)
        on_cpu = segment_batch(rows, self.tokenizer.pad_token_id)
        batch = {name: tensor.to(self.accelerator.device) for name, tensor in on_cpu.items()}
        return measure_gap(self.score(model, batch)[0], batch, self._sampler_slack)

    # Stage 2: the hooks

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        """(B,) what an episode earned beyond V*, in units of the return range: A* up to the error of V*."""
        measured = in_return_ranges(rollout.summaries, rollout.returns, self.values)
        known = ~measured.returns.isnan()  # an environment that failed gave no return
        self._window.append(tuple(column.cpu()[known.cpu()] for column in measured.columns))
        advantages = measured.advantages[known]
        self.record(
            "train",
            {
                "astar/value": measured.values.mean().item(),
                "astar/advantage": advantages.mean().item(),
                "astar/advantage_std": advantages.std(correction=0).item(),
                "astar/reference_episodes": float(self._reference_episodes),
                "astar/trainable_starts": float(sum(len(values.trainable) for values in self.values.values())),
            },
        )
        return measured.advantages.nan_to_num(nan=0.0)

    def policy_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """The regression, never negative; plus ``kl_coef`` times the KL to the reference (k3)."""
        mask = sampled_mask(inputs)
        logprobs, _ = self.score(model, inputs)
        fit = regress(logprobs, mask, inputs, self.args)
        self.record_means({f"astar/{name}": of_row for name, of_row in fit.per_row.items()}, inputs["trajectory_share"])
        self.record_means({"kl": fit.kl}, mask)
        return fit.loss

    # Refreshes, start states and checkpoints

    def before_training(self) -> None:
        """Stage 1, unless a checkpoint had V* of all start states; a run made longer can have further ones."""
        known = {(task, seed) for task, values in self.values.items() for seed in values.starts}
        if any((task, seed) not in known for task, seeds in self._tasks.starts().items() for seed in seeds):
            self._reference_episodes -= sum(values.episodes for values in self.values.values())  # they are asked again
            self.estimate_values()

    def training_batch(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """As in `StarPOTrainer`, from trainable start states only, and after a refresh if one is due."""
        if self._refresh_is_due():
            self.reference.reanchor()
            self._last_refresh = self.state.global_step
            self._window.clear()
            self.estimate_values()
        return super().training_batch(self._with_trainable_starts(rows))

    def _refresh_is_due(self) -> bool:
        """All processes decide the same, since all know the same columns."""
        age = self.state.global_step - self._last_refresh
        if self.args.refresh_steps and age >= self.args.refresh_steps:
            return True
        if not self.args.refresh_when_stale or len(self._window) < self.args.stale_window:
            return False
        return is_stale(*(torch.cat(column) for column in zip(*self._window, strict=True)))

    def _with_trainable_starts(
        self, rows: list[dict[str, Any]], played: Iterable[StartState] = ()
    ) -> list[dict[str, Any]]:
        """Replace start states from which the reference always earns the same, see `exchanged`."""
        tasks, size = self._tasks, self.num_generations
        groups = gather_object([(tasks.index(row), row["seed"]) for row in rows])[::size]  # of all processes
        is_eased = self.rollouts_before < self.args.curriculum_rollouts
        entropy = [self.args.seed, self.state.global_step, self.micro_step]
        starts = exchanged(groups, self.values, entropy, tasks.difficulty if is_eased else None, played)
        places = [(self.accelerator.process_index * len(rows) + index) // size for index in range(len(rows))]
        return [
            row if starts[place] == groups[place] else tasks.row(*starts[place])
            for row, place in zip(rows, places, strict=True)
        ]

    def _refill_rows(self, attempt: int, played: Sequence[TrajectorySummary] = ()) -> list[dict[str, Any]]:
        before = [(one.task, one.seed) for one in played[:: self.num_generations]]
        return self._with_trainable_starts(super()._refill_rows(attempt, played), before)

    def _add_scores(self, batch: dict[str, Any]) -> None:
        rows_a_pass = self.args.per_device_train_batch_size
        with self.reference.model() as model:
            batch["ref_per_token_logps"], _ = self.score(model, batch, rows_a_pass)
        if batch["parted"]:
            # Not the sampler's, which may be vLLM, a merged copy in half precision, or a rollout hook's own.
            now, _ = self.score(self.model, batch, rows_a_pass)
            differences = (now - batch["ref_per_token_logps"]).masked_fill(~sampled_mask(batch), 0.0)
            batch["others_log_ratio"] = sums_of_others(differences.sum(dim=1), batch["trajectory"])

    def save_algorithm_state(self, folder: Path) -> None:
        """Write V*, the reference if a refresh changed it, and what decides about the next refresh."""
        if self.reference.reanchored:
            self.reference.save(folder / "reference")
        state = {
            "last_refresh": self._last_refresh,
            "reanchored": self.reference.reanchored,
            "reference": self.reference.fingerprint(),
            "reference_episodes": self._reference_episodes,
            "settings": self._settings_of_values(),
            "values": {task: values.as_dict() for task, values in self.values.items()},
            "window": [[column.tolist() for column in columns] for columns in self._window],
        }
        if self.accelerator.is_main_process:
            write_atomically(folder / _STATE, json.dumps(state))

    def _settings_of_values(self) -> dict[str, Any]:
        """What V* depends on beside the reference, in JSON's types."""
        settings: dict[str, Any] = {"beta1": self.args.beta1, "return_range": self.args.return_range}
        for task in self._tasks.starts():
            played = json.loads(self._value_key(task, "").as_json())
            played |= json.loads(played.pop("reward"))
            settings |= {f"{name} of {self._tasks.names[task]}": value for name, value in played.items()}
        return settings

    def load_algorithm_state(self, folder: Path) -> None:
        """Read what `save_algorithm_state` wrote.

        Raises:
            OptionError: If its V* is of other settings, such as another β₁ or another reward.
            ReferenceWeightsError: If the reference is missing or is another one.
        """
        path = folder / _STATE
        if not path.is_file():
            raise ReferenceWeightsError(f"{path} does not exist; resume from a checkpoint of an A*-PO run")
        state = json.loads(path.read_text(encoding="utf-8"))
        if state["reanchored"]:
            self.reference.load(folder / "reference")
        if self.reference.fingerprint() != state["reference"]:
            raise ReferenceWeightsError(
                f"{folder} belongs to a run with another reference; make the trainer with the model that the run "
                "began with, not with one of its checkpoints"
            )
        was, now = state["settings"], self._settings_of_values()
        if now != was:
            raise OptionError(
                f"{folder} has V* of other settings: {_changes(was, now)}; resume with those that the run began with, "
                "or begin a new run"
            )
        self._last_refresh, self._reference_episodes = state["last_refresh"], state["reference_episodes"]
        self.values = {int(task): ReferenceValues.from_dict(values) for task, values in state["values"].items()}
        self._window.extend(tuple(map(torch.tensor, columns)) for columns in state["window"])


def _changes(was: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Every setting that differs, with both values unless they are long."""
    said = []
    for name in sorted(was.keys() | now.keys()):
        before, after = repr(was.get(name)), repr(now.get(name))
        if before != after:
            said.append(f"{name} differs" if len(before + after) > 100 else f"{name} was {before}, now {after}")
    return "; ".join(said)
