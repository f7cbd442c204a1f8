"""What our trainers need of the inside of TRL and Transformers, under public names.

`TRLAdapter` turns TRL's callbacks into four hooks, which the trainers fill (`training_batch`, `evaluation_batch`,
`prepare_micro_batches`, `training_loss`). What it relies on, each held by a contract test:

- ``_generate_and_score_completions`` gets rows repeated within contiguous groups; ``_prepare_inputs`` splits its result
  into ``_buffered_inputs``, of which ``_step`` is the present one;
- ``env_mask`` of a ``rollout_func`` becomes the mask ``tool_mask``; ``_calculate_rewards`` returns all processes' (B,
F);
- ``_compute_loss`` reads (B,) or (B, T) ``advantages``, asks for log-probabilities before ``old_per_token_logps``,
  multiplies by ``importance_sampling_ratio`` if ``use_vllm``, and logs means over a micro-batch's tokens in
  ``_metrics``;
- ``_get_grad_norm`` is asked before the optimizer's step; ``_entropy_bonus_enabled`` switches a bonus per micro-batch;
- ``_get_eval_sampler`` and ``_get_train_sampler`` order the rows; ``vllm_generation`` has step ``_last_loaded_step``;
- ``_prepare_for_training`` loads a checkpoint; ``_save_checkpoint`` writes ``trainer_state.json`` last.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl.extras.profiling import profiling_context
from trl.trainer.utils import RepeatSampler

from ragen_trl.batching.batch import pictures_of, to_rollout_output
from ragen_trl.policies.adapters import name_base_absolutely
from ragen_trl.policies.vllm.client import VLLMServerError
from ragen_trl.policies.vllm.engines import Engine, connect
from ragen_trl.policies.vllm.weights import WeightSync
from ragen_trl.trainers.checkpoints import whole_checkpoints
from ragen_trl.trainers.checks import check_epochs, check_gradient
from ragen_trl.trainers.trl.evaluation import TRLEvaluation
from ragen_trl.trainers.trl.loss_inputs import LossInputs
from ragen_trl.trainers.trl.plain import (
    references_divided_by_layer,
    unwrapped_for_generation,
    use_one_device,
    without_message,
)
from ragen_trl.trainers.trl.sampling_servers import servers_instead_of_a_client
from ragen_trl.trainers.trl.synced_reference import load_synced_reference, save_synced_reference
from ragen_trl.trajectory import Trajectory


class _Scoring:
    """One rollout while TRL scores it: what was played, and (B, F) the rewards that TRL calculated."""

    def __init__(self, played: Sequence[Trajectory]) -> None:
        self.played = played
        self.rewards = torch.empty(0)


def _what_was_played(prompts: list[Any], trainer: "TRLAdapter") -> dict[str, list[Any]]:
    assert trainer._scoring is not None
    return to_rollout_output(trainer._scoring.played)


class TRLAdapter(TRLEvaluation, ABC):
    """TRL's ``GRPOTrainer`` with the seams that this package needs as public methods; it takes no ``rollout_func``."""

    _buffered_inputs: list[dict[str, Any]] | None
    _last_loaded_step: int
    use_vllm: bool
    vllm_importance_sampling_correction: bool
    importance_sampling_level: str

    def __init__(self, **options: Any) -> None:
        self._scoring: _Scoring | None = None  # while TRL scores a rollout
        args, model = options["args"], options["model"]
        use_one_device(args)
        ignored = None
        if isinstance(model, str) or (args.beta and args.device.type == "cuda"):  # TRL loads one
            ignored = "You passed `model_init_kwargs`" if args.model_init_kwargs is None else None
            args.model_init_kwargs = {"device_map": None, **(args.model_init_kwargs or {})}  # TRL's default is "auto"
        # TRL may change this seam: its release is pinned, and contract tests watch it.
        with (
            warnings.catch_warnings(),
            without_message(ignored),
            references_divided_by_layer(),
            servers_instead_of_a_client(args),
        ):
            warnings.filterwarnings("ignore", "You are using 'rollout_func'", UserWarning)
            super().__init__(rollout_func=_what_was_played, **options)
        self._engine: Engine | None = None
        if self.use_vllm:
            self._weight_sync = WeightSync(self.vllm_generation, self.args, self.accelerator.is_main_process)
            restore, ahead = self._weight_sync.restore, self.args.one_step_off_policy
            self._engine = connect(self.vllm_generation, self.accelerator, restore, ahead)
        name_base_absolutely(self.accelerator.unwrap_model(self.model))
        self._entropy_bonus_enabled = self.args.use_adaptive_entropy

    # Hooks that TRL's callbacks lead to

    @abstractmethod
    def training_batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Hook: this process's generation batch for dataset rows, which TRL has repeated within groups."""

    @abstractmethod
    def evaluation_batch(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Hook: the same for TRL's evaluation during training."""

    @abstractmethod
    def prepare_micro_batches(self, micro_batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Hook: the micro-batches of a new rollout before training on it; return as many."""

    @abstractmethod
    def training_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """Hook: the loss of one micro-batch of `prepare_micro_batches`."""

    def before_training(self) -> None:
        """Hook: called before the first update, when the launch has divided the model and a checkpoint is loaded."""

    def save_algorithm_state(self, folder: Path) -> None:
        """Hook: write into a checkpoint's folder what an algorithm needs to resume; called on all processes."""

    def load_algorithm_state(self, folder: Path) -> None:
        """Hook: read what `save_algorithm_state` wrote."""

    def save_rollout(self, folder: Path) -> None:
        """Hook: write a rollout that was played and not yet trained on into that folder. There is none by default."""

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        return self.training_batch(inputs) if self.model.training else self._finish_batch(self.evaluation_batch(inputs))

    def _prepare_inputs(self, generation_batch: Any) -> dict[str, Any]:
        before = self._buffered_inputs
        inputs: dict[str, Any] = super()._prepare_inputs(generation_batch)
        if not self.model.training or self._buffered_inputs is None or self._buffered_inputs is before:
            return inputs
        self._buffered_inputs = self.prepare_micro_batches(self._buffered_inputs)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _compute_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        if self.model.training:
            return self.training_loss(model, inputs)
        return self._record_loss(self.trl_loss(model, inputs), inputs)

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        check_epochs(self.args, len(train_dataloader), max_steps)
        prepared = super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        if resume_from_checkpoint is not None:
            load_synced_reference(self, Path(resume_from_checkpoint))
            self.load_algorithm_state(Path(resume_from_checkpoint))
        self.before_training()
        done = self.state.global_step >= max_steps  # where Transformers would take one more step
        return (prepared[0], torch.utils.data.DataLoader([])) if done else prepared

    def _get_eval_sampler(self, eval_dataset: Dataset) -> RepeatSampler:
        """In order: environments take turns in the rows, so every batch holds the same number of each."""
        return RepeatSampler(eval_dataset, mini_repeat_count=self.num_generations_eval, shuffle=False)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """As in TRL, from a new rollout on; if a vLLM server fails for good, with a checkpoint of the last update."""
        if self._buffered_inputs is not None:  # of an earlier training, which may have broken off anywhere
            self._step, self._buffered_inputs, self._entropy_window_stats = 0, None, None
            for logged in self._metrics.values():
                logged.clear()
        self.forget_sent_weights()
        try:
            return super().train(*args, **kwargs)
        except VLLMServerError:
            self._save_before_ending()
            raise

    def _save_before_ending(self) -> None:
        """Save the last update, of which everything is there until the next one begins, unless it is saved already."""
        step, of_rollout = self.state.global_step, max(1, round(self.args.steps_per_rollout))
        saved = step == 0 or step in whole_checkpoints(self.args.output_dir)
        self.accelerator.wait_for_everyone()  # none saves before all have looked
        if not saved and step % of_rollout == 0:
            self._save_checkpoint(self.model, None)
            self.callback_handler.on_save(self.args, self.state, self.control)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        self.save_rollout(folder)
        save_synced_reference(self, folder)
        self.save_algorithm_state(folder)  # before TRL, whose last file marks a checkpoint as whole
        super()._save_checkpoint(model, trial)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As in Transformers, which writes no model from FSDP2 with ``state_dict_type: SHARDED_STATE_DICT``.

        Checkpoints of such a launch have no whole weights either; what a user asks for does.
        """
        plugin = self.accelerator.state.fsdp_plugin if self.is_fsdp_enabled else None
        if plugin is not None and not _internal_call and "SHARDED" in str(plugin.state_dict_type):
            self._save(output_dir or self.args.output_dir, self.accelerator.get_state_dict(self.model))
        super().save_model(output_dir, _internal_call)
        if self.pictures is not None and self.args.should_save:
            self.pictures.save(Path(output_dir or self.args.output_dir))

    # TRL's services

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer."""
        return self._tokenizer

    @property
    def micro_step(self) -> int:
        """Micro-batches of this update so far; above 0 if it takes several rollouts. TRL's own count is not resumed."""
        return int(self._step % self.args.gradient_accumulation_steps)

    @property
    def micro_batches_of_update(self) -> list[dict[str, Any]]:
        """The present rollout's micro-batches of this update; all of them if it takes several rollouts."""
        size, place = self.args.gradient_accumulation_steps, self._step % self.args.steps_per_generation
        return (self._buffered_inputs or [])[place - place % size :][:size]

    @property
    def rollouts_before(self) -> int:
        """Rollouts before the present one, also in an unfinished update."""
        micro_steps = self.state.global_step * self.args.gradient_accumulation_steps + self.micro_step
        return int(micro_steps // (self.args.steps_per_generation * self.args.num_iterations))

    def rows_of_rollouts(self) -> list[list[int]]:
        """Indices of the data set's rows that each rollout of an epoch plays, on all processes together."""
        order, size = list(self._get_train_sampler()), self.args.generation_batch_size
        every = size * self.args.steps_per_generation * self.args.num_iterations  # TRL repeats a rollout's rows
        return [order[first : first + size] for first in range(0, len(order), every)]

    def score_trajectories(
        self, rows: Sequence[dict[str, Any]], played: Sequence[Trajectory]
    ) -> tuple[dict[str, Any], torch.Tensor]:
        """Have TRL pad what was played and call the reward functions.

        Where `scores_later` says so, its old and reference log-probabilities are 0.

        Returns:
            TRL's tensors for this process, and (B, F) the rewards of all processes, unweighted, the environment's
            first.

        Raises:
            ValueError: If a reward of an environment is not finite.
        """
        shown = [
            {**row, "prompt": [{"role": "user", "content": trajectory.turns[0].observation}]}
            for row, trajectory in zip(rows, played, strict=True)
        ]
        self._scoring, corrects = _Scoring(played), self.vllm_importance_sampling_correction
        self._postpones_scores = later = self.scores_later(played)
        seen = pictures_of(played)
        self._pictures_shown = seen.get("pictures")
        self.vllm_importance_sampling_correction = corrects and not later
        try:
            return {**super()._generate_and_score_completions(shown), **seen}, self._scoring.rewards
        finally:
            self._scoring, self.vllm_importance_sampling_correction = None, corrects
            self._postpones_scores, self._pictures_shown = False, None

    def _calculate_rewards(self, *args: Any) -> torch.Tensor:
        rewards: torch.Tensor = super()._calculate_rewards(*args)
        if not bool(torch.isfinite(rewards[:, 0]).all()):
            raise ValueError(f"the environment paid {rewards[:, 0].tolist()}; rewards must be finite")
        assert self._scoring is not None
        self._scoring.rewards = rewards
        self._record_rewards(rewards)
        return rewards

    def trl_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """TRL's loss of one micro-batch, of the kind that ``loss_type`` names; ratios of sequences are GSPO-token's.

        TRL's one ratio for a row would average what differs by token (advantages, the KL term, the sampler's ratios)
        over the row, and be wrong for a part of a trajectory.
        """
        level, samples = self.importance_sampling_level, self.use_vllm
        self._loss_inputs = LossInputs(inputs, sequence_ratios=level == "sequence")
        self.importance_sampling_level = "token"
        self.use_vllm = samples or "importance_sampling_ratio" in inputs  # TRL reads the ratio only with vLLM
        try:
            loss: torch.Tensor = super()._compute_loss(model, self._loss_inputs.columns)
        finally:
            self._loss_inputs, self.importance_sampling_level, self.use_vllm = None, level, samples
        return loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        if norm is not None and not self.args.fp16:  # whose loss scaler skips such a step itself
            check_gradient(float(norm), self.state.global_step + 1, taken=self.is_deepspeed_enabled)
        return norm

    # What TRL logs

    def record(self, mode: str, values: Mapping[str, float]) -> None:
        """Log values by key; TRL writes the mean of each since the last row of its log of this ``mode``."""
        for name, value in values.items():
            self._metrics[mode][name].append(value)

    def add_to_last(self, mode: str, name: str, value: float) -> None:
        """Add to the last recorded value."""
        self._metrics[mode][name][-1] += value

    @contextmanager
    def revised_metrics(self, factors: Mapping[str, float], keep: bool) -> Iterator[Callable[[str], bool]]:
        """Multiply what this block logs for training by ``factors``, or drop it; yields whether a key was logged."""
        metrics = self._metrics["train"]
        before = {name: len(values) for name, values in metrics.items()}
        yield lambda name: len(metrics.get(name, ())) > before.get(name, 0)
        for name, values in metrics.items():
            first = before.get(name, 0)
            if not keep:
                del values[first:]
            elif name in factors:
                values[first:] = [value * factors[name] for value in values[first:]]

    def show_advantages(self, advantages: Sequence[float]) -> None:
        """Put the advantages of a rollout, one for each trajectory, into TRL's table of completions."""
        self._logs["advantages"].clear()  # a deque as long as a rollout, which keeps the last ones
        self._logs["advantages"].extend(advantages)

    # Weights

    def unwrapped_model(self) -> AbstractContextManager[PreTrainedModel]:
        """The policy without its wrappers, ready to sample."""
        if self.use_vllm:  # vLLM samples with its own weights: nothing to gather
            return nullcontext(self.accelerator.unwrap_model(self.model))
        return unwrapped_for_generation(self)

    def whole_under_zero3(self) -> AbstractContextManager[object]:
        """Whole weights where ZeRO-3 divides them, for passes that do not begin at the engine's root."""
        plugin = self.accelerator.state.deepspeed_plugin if self.is_deepspeed_enabled else None
        return nullcontext() if plugin is None or plugin.zero_stage < 3 else unwrapped_for_generation(self)

    def send_weights(self) -> None:
        """Send vLLM the weights of this step, unless it has them."""
        if self._last_loaded_step != self.state.global_step:
            with profiling_context(self, "sync_weights"):
                self._weight_sync.send()
            self._last_loaded_step = self.state.global_step

    def forget_sent_weights(self) -> None:
        """Make the next `send_weights` send the present weights, whichever vLLM has."""
        self._last_loaded_step = -1

    def rest_engine(self) -> None:
        """Give a sleeping engine's memory to the update; the next `send_weights` wakes it."""
        if self._engine is not None and self.args.vllm_enable_sleep_mode:
            self._engine.sleep()
            self.forget_sent_weights()
