"""StarPO and StarPO-S on top of TRL's ``GRPOTrainer``, to be read from top to bottom.

One rollout's way: ``_prepare_inputs`` → ``training_batch`` → ``_play`` → ``rollout`` (hook) → ``select_groups`` (hook)
→ ``advantages`` (hook) → ``segment_rows`` → ``_add_scores`` → ``micro_batches`` → ``compute_loss`` → ``policy_loss``
(hook).
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate.utils import extract_model_from_parallel, gather_object
from datasets import Dataset
from peft import PeftConfig
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context
from trl.models.utils import disable_gradient_checkpointing

from ragen_envs import AgentTurns
from ragen_trl import trl_seams
from ragen_trl.algorithms.losses import kl_penalty, policy_loss, sampler_ratio
from ragen_trl.batching.batch import chosen_rows, oracle_mask, sampled_mask, segment_rows, select_rows
from ragen_trl.batching.micro_batches import add_step_totals, micro_batches
from ragen_trl.batching.rollout_batch import RolloutBatch, TrajectorySummary, warn_of_unlike_starts
from ragen_trl.config.checks import warn_of_narrowed_sampling
from ragen_trl.config.options import CRITIC_ADVANTAGES
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.credit.critic import Critic
from ragen_trl.credit.estimators import advantages_in_groups, critic_advantages, uncertain_groups
from ragen_trl.policies.models import check_policy, is_adapter, load_model, name_base_absolutely
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vision import local_policy, picture_processor
from ragen_trl.policies.vllm import Engine, VLLMPolicy, connect, send_weights
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.environments import EnvLike, EnvPool, make_chat, save_play_options
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.rollout.loop import EnvResetError
from ragen_trl.rollout.tasks import Tasks, reset_options
from ragen_trl.rollout.teacher import Taught, Teacher, corrections
from ragen_trl.system.atomic import seal, writing
from ragen_trl.system.processes import on_main, one_writer
from ragen_trl.system.provenance import provenance
from ragen_trl.training import checks, metrics
from ragen_trl.training.checkpoints import facts_of, finish_checkpoint, resumable_checkpoint
from ragen_trl.training.launch import unwrapped_for_generation
from ragen_trl.training.observers import Observer, TeachCritic, guard_trackers, observe
from ragen_trl.training.recorder import TrajectoryRecorder
from ragen_trl.training.reference import Reference
from ragen_trl.training.scoring import Scorer, Scores
from ragen_trl.training.self_check import Gap, check_gap, measure_gap, tolerance_of
from ragen_trl.trajectory import Trajectory

logger = logging.getLogger(__name__)


class StarPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """Train a language model as an agent, with StarPO or StarPO-S (RAGEN, arXiv 2504.20073).

    An algorithm is four hooks, which every update calls in this order: `rollout`, `select_groups`, `advantages`,
    `policy_loss`; three more are for what it keeps: `before_training`, `save_algorithm_state`, `load_algorithm_state`.

    Args:
        model: Path or hub id of a causal language model, or the model itself.
        env: A Gymnasium id, a function that makes an environment, a class for TRL's ``environment_factory``, an
            ``EnvSpec``, or a list of these. With a list every rollout has groups of all of them, in the shares of
            ``args.env_weights``. What is no ``AgentTurns`` is wrapped in one, with the turn limits of ``args``.
        args: The configuration, a ``StarPOConfig`` or ``StarPOSConfig``. It is copied.
        processing_class: The tokenizer; loaded with the model if unset.
        reward_funcs: TRL reward functions to add to the environment's return, also asynchronous ones and reward models;
            weights (``reward_weights``) count the environment's return first. They also get ``trajectory``, a list of
            `Trajectory`.
        callbacks: As in TRL, and so are ``optimizers``, ``peft_config`` and ``quantization_config``.
        train_dataset: Your own start states: columns ``env`` (id; not with the argument), ``seed`` (else rows are
            numbered) and, optionally, ``kwargs`` (of ``gymnasium.make``). All others reach the reward functions and
            the environment's ``reset(options=…)``, of a ``TextEnv`` those in its ``option_names``.
        eval_dataset: Your own start states for evaluation during training, described in the same way; instead of
            ``num_eval_seeds``.
        reward_processing_classes: As in TRL: the tokenizers of reward models, one for each of ``reward_funcs``.

    Attributes:
        critic: The value model of the PPO forms (``advantage="gae"``, ``"turn_gae"``, ``"bi_level_gae"``), or ``None``.
        reference: The frozen policy that the KL is measured to (``beta``, ``log_kl``), or ``None``.
        observers: They are shown every rollout; see `observers.Observer`.

    Raises:
        UserError: If an argument is of the wrong kind, the model, an environment or start states cannot be used, or the
            processes cannot train together; the message says what to do.
    """

    _tag_names = ["trl", "ragen", "starpo"]
    _name = "StarPO"
    _paper = {
        "title": "RAGEN: Understanding Self-Evolution in LLM Agents via Multi-Turn Reinforcement Learning",
        "id": "2504.20073",
    }
    config_class: type[StarPOConfig] = StarPOConfig
    _always_has_reference = False
    loss_is_scaled_for_ga = True  # as in TRL: losses of micro-batches are added up
    args: Any  # a StarPOConfig, whose fields of None TRL has filled in
    control: Any
    _sent_step: int
    _lesson: Callable[[], dict[str, float]] | None  # what the critic still has to learn of the present rollout

    def __init__(
        self,
        model: str | PreTrainedModel,
        env: EnvLike | Sequence[EnvLike] | None = None,
        args: StarPOConfig | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        reward_funcs: checks.RewardFunction | list[checks.RewardFunction] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        peft_config: PeftConfig | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | None = None,
        reward_processing_classes: PreTrainedTokenizerBase | list[PreTrainedTokenizerBase | None] | None = None,
        quantization_config: Any = None,
    ) -> None:
        args, extra, readers = checks.own_arguments(type(self), args), reward_funcs or [], reward_processing_classes
        self._extra = extra if isinstance(extra, list) else [extra]
        if readers is not None:  # one for each of TRL's functions, of which the environment's return is the first
            readers = [None, *(readers if isinstance(readers, list) else [readers])]
        check_policy(model, args, peft_config is not None)
        warn_of_narrowed_sampling(args)
        self.pictures, processing_class = picture_processor(model, args, processing_class)
        self._envs = EnvPool(args)
        self._tasks = Tasks(env, train_dataset, args)
        name = model if isinstance(model, str) else None
        if name is not None and is_adapter(name):  # of an earlier run: it goes on learning
            model = load_model(name, trains=True)
            processing_class = processing_class or AutoTokenizer.from_pretrained(name)
        elif name is not None:
            args.model_init_kwargs = {"device_map": None, **(args.model_init_kwargs or {})}  # TRL's default is "auto"
        # TRL would load a second model for the KL: `Reference` keeps what training changes, of LoRA the adapter alone.
        beta, args.beta = args.beta, 0.0
        super().__init__(
            model=model,
            reward_funcs=[checks.environment_return, *map(checks.finite_rewards, self._extra)],
            args=args,
            train_dataset=self._tasks.rows,
            eval_dataset=self._tasks.evaluation_rows(eval_dataset),
            processing_class=processing_class,
            reward_processing_classes=readers,
            callbacks=callbacks,
            optimizers=optimizers,
            quantization_config=quantization_config,
            peft_config=peft_config,
        )
        trl_seams.check_seams(self)
        guard_trackers(self.callback_handler.callbacks)
        self.beta = args.beta = beta
        self._save_total_limit, args.save_total_limit = args.save_total_limit, None  # see `finish_checkpoint`
        self._facts = facts_of(self)
        checks.check_launch(self)
        policy = self.accelerator.unwrap_model(self.model)
        name_base_absolutely(policy)
        self._engine: Engine | None = connect(self.vllm_generation, self.accelerator) if self.use_vllm else None
        # Not accelerator.autocast, which reads a global state that the next configuration resets.
        precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.accelerator.mixed_precision)
        self._autocast = partial(
            torch.autocast, self.accelerator.device.type, dtype=precision, enabled=precision is not None
        )
        text = None if self.pictures is None else self.pictures.text
        self.chat = make_chat(self.tokenizer, self._envs.take(self._tasks.specs)[0], args, text)
        self._teacher = Teacher(args, self.chat, args.oracle_actions_per_turn) if args.oracle_coef else None
        self._scorer = Scorer(self, self.pictures)
        self.reference = Reference(policy) if beta or args.log_kl or self._always_has_reference else None
        if type(self) is StarPOTrainer and args.filter_ratio < 1 and args.filter_strategy == "top_k":
            self._name = "StarPO-S"  # in the model card
        self.critic: Critic | None = None
        if args.advantage in CRITIC_ADVANTAGES:
            pad_id, shares = self.tokenizer.pad_token_id, self._scorer.shares_prefixes
            self.critic = Critic(policy, self.accelerator, args, pad_id, shares)
            self.add_callback(TeachCritic(self))
        recorder = TrajectoryRecorder(args.output_dir, self.tokenizer, traces="trackio" in args.report_to)
        self.add_callback(recorder)
        self.observers: list[Observer] = [recorder] if args.record_rollouts else []
        self._begin_training()

    # The hooks

    def rollout(self, starts: list[Start], envs: list[AgentTurns], policy: Policy) -> list[Trajectory]:
        """Hook: play one episode per start, in one environment each. Override it to sample in another way.

        ``policy`` is the model in training, or A*-PO's reference.
        """
        return self._envs.play(envs, policy, starts)

    def select_groups(self, rollout: RolloutBatch) -> list[int]:
        """Hook: the filter; here the most uncertain groups (StarPO-S), all of them with ``filter_ratio=1``.

        Args:
            rollout: Everything sampled so far for this update; with refills more than ``groups_per_generation``.

        Returns:
            Ascending indices of the groups to train on, the same on every process; an empty list means no update. If
            there are fewer than ``args.groups_per_update``, another rollout follows, up to ``max_refills`` times.
        """
        return uncertain_groups(rollout, self.args)

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        """Hook: the advantage estimator; here the one that ``args.advantage`` names.

        Args:
            rollout: The groups that are trained on.

        Returns:
            (B,) one for each trajectory of all processes, or (L, T) one for each completion token of this process's
            trajectories; environment tokens are masked out later.
        """
        if self.critic is not None:  # it values the states now, and learns from the same returns in `teach_critic`
            with nullcontext() if self.critic.is_divided else self.whole_under_zero3():
                seed = [self.args.seed, self.state.global_step]
                found, self._lesson = critic_advantages(self.critic, rollout, self.args, seed)
            return found
        return advantages_in_groups(rollout, self.args)

    def policy_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """Hook: the loss of one micro-batch; here `losses.policy_loss`, of the kind that ``args.loss_type`` names.

        The update's loss is the sum over micro-batches and processes: divide a sum over tokens by
        ``inputs["step_tokens"]``, and a sum over trajectories by ``inputs["step_trajectories"]``.

        Args:
            model: The policy, perhaps wrapped; `score` gives its log-probabilities.
            inputs: This process's micro-batch, see docs/your_own_trainer.md.
        """
        args = self.args
        logprobs, _ = self.score(model, inputs)
        mask, old = sampled_mask(inputs), inputs.get("old_per_token_logps")
        loss, columns = policy_loss(
            logprobs,
            logprobs.detach() if old is None else old,
            inputs["advantages"],
            mask,
            inputs["trajectory_share"],
            inputs["step_tokens"],
            inputs["step_trajectories"],
            kind=args.loss_type,
            epsilon_low=args.epsilon,
            epsilon_high=args.epsilon if args.epsilon_high is None else args.epsilon_high,
            dual_clip=args.delta,
            ratios_of=args.importance_sampling_level,  # type: ignore[arg-type]
            sampler_ratio=inputs.get("importance_sampling_ratio"),
            ref_logprobs=inputs.get("ref_per_token_logps"),
            beta=args.beta,
            unbiased_kl=args.use_bias_correction_kl,
            longest=args.max_completion_length,
        )
        self.record_means(columns, mask)
        return loss

    def before_training(self) -> None:
        """Hook: called before the first update, when the launch has divided the model and a checkpoint is loaded."""

    def save_algorithm_state(self, folder: Path) -> None:
        """Hook: write into a checkpoint's folder what an algorithm needs to resume; called on all processes."""
        if self.critic is not None:
            self.critic.save(folder / "critic.pt")

    def load_algorithm_state(self, folder: Path) -> None:
        """Hook: read what `save_algorithm_state` wrote."""
        if self.critic is not None:
            self.critic.load(folder / "critic.pt")

    # What hooks use

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer."""
        return getattr(self.processing_class, "tokenizer", self.processing_class)

    def score(self, model: PreTrainedModel, inputs: Mapping[str, Any]) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probabilities and entropies (nats) of the completion tokens, both (B, T), for your own losses.

        They are 0 at tokens that the policy did not sample, since these are not computed where rows share prefixes.
        Score the policy last in a micro-batch: the logged values come from the last call.

        Args:
            model: The policy, or the policy as its reference.
            inputs: A micro-batch, or the rows of a whole rollout.
        """
        scored = inputs.get("scored")  # where `compute_loss` finds the scores, while `policy_loss` runs
        router_loss = self.aux_loss_enabled and scored is not None
        scores = self._scorer(model, inputs, router_loss=router_loss)
        if scored is not None:
            scored.append(scores)
        assert scores.entropies is not None
        others = ~sampled_mask(inputs)  # an oracle's tokens are scored for `compute_loss` alone
        return scores.logprobs.masked_fill(others, 0.0), scores.entropies.masked_fill(others, 0.0)

    def record(self, mode: str, values: Mapping[str, float]) -> None:
        """Log values by key; TRL writes the mean of each since the last row of its log of this ``mode``."""
        trl_seams.log_values(self, mode, values)

    def record_means(self, columns: Mapping[str, torch.Tensor], weights: torch.Tensor) -> None:
        """Log, by key, means over an update: of all its micro-batches and processes. Call it in `policy_loss`.

        A figure named like one of the trainer's own (``kl``, ``entropy``) takes its place.
        ``weights`` has the shape of each column, such as (B, T) for a figure of every token; 0 leaves a place out.
        """
        self._means_of_hook.add(columns, weights)

    def policy(self, temperature: float = 1.0, model: PreTrainedModel | None = None) -> Policy:
        """The model as a policy, for ``evaluate`` and ``play``: it samples as training does; temperature 0 is greedy.

        With a vLLM server (``vllm_mode="server"``) all processes must play together, and equally often.
        """
        args = self.args
        sampling = Sampling.of(args, temperature)
        unwrapped = model if model is not None else self.accelerator.unwrap_model(self.model)
        # Turns have other shapes every time, and a compiled model hides what it takes: play with its weights alone.
        unwrapped = extract_model_from_parallel(unwrapped, keep_torch_compile=False)
        if self._engine is None:
            return local_policy(unwrapped, self.chat, sampling, self._autocast, self.pictures, args.merge_lora)
        if model is None:  # between updates a caller may have loaded other weights, such as the best checkpoint's
            self.forget_sent_weights()
        return VLLMPolicy(self._engine, unwrapped, self.chat, sampling, self.send_weights)

    # Training

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> Any:
        """As in TRL, from a new rollout on. ``resume_from_checkpoint=True`` takes the last whole checkpoint.

        Raises:
            SamplerMismatchError: If the trainer computes other log-probabilities for the tokens of the first rollout
                than the sampler did, by more than rounding; see ``args.sampler_check``.
            UserError: In the main process, if no training can go on from the checkpoint, see `resumable_checkpoint`,
                or if another command or script writes to ``output_dir``; the other processes then end.
        """
        config = self.args
        asked = resume_from_checkpoint, config.output_dir, config.steps_per_rollout, config.max_steps, self._facts
        with one_writer(Path(config.output_dir)):
            checkpoint = on_main(lambda: resumable_checkpoint(*asked))
            self._begin_training()
            return super().train(None if checkpoint is None else str(checkpoint), trial, ignore_keys_for_eval)

    def _begin_training(self) -> None:
        """Forget everything of an earlier training, which may have broken off anywhere."""
        self._to_come: list[dict[str, Any]] = []  # micro-batches of the present rollout that are still to be trained on
        self._means, self._means_of_hook = metrics.UpdateMeans(), metrics.UpdateMeans()  # of this update so far
        self._gaps: list[torch.Tensor] | None = []  # to the sampler in the first update; None: it is checked
        self._lesson = None
        trl_seams.forget_values(self)
        self.forget_sent_weights()

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        prepared = super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        if resume_from_checkpoint is not None:
            self.load_algorithm_state(Path(resume_from_checkpoint))
        self.before_training()
        done = self.state.global_step >= max_steps  # where Transformers would take one more step
        return (prepared[0], torch.utils.data.DataLoader([])) if done else prepared

    def _prepare_inputs(self, generation_batch: list[dict[str, Any]]) -> dict[str, Any]:
        """The next micro-batch. TRL hands over the rows of its rollout with each, repeated within groups."""
        if not self._to_come:
            self._to_come = self.training_batch(generation_batch) * self.args.num_iterations
        return self._to_come.pop(0)

    def teach_critic(self) -> None:
        """Fit the critic to the rollout, once; `TeachCritic` calls it after the policy's first step on it."""
        if self._lesson is not None and self.critic is not None:
            with nullcontext() if self.critic.is_divided else self.whole_under_zero3():
                self.record("train", self._lesson())
            self._lesson = None

    # From rows to micro-batches

    def training_batch(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Play the rows, filter and refill, and divide the kept groups into the micro-batches of the rollout."""
        rollouts = list[RolloutBatch]()
        for attempt in range(self.args.max_refills + 1):
            rollouts.append(self._play(self._refill_rows(attempt) if attempt else rows, attempt))
            rollout = RolloutBatch.joined(rollouts)
            found = self.select_groups(rollout)
            kept = checks.checked_groups(found, rollout.num_groups, self.args.groups_per_generation)
            if len(kept) >= self.args.groups_per_update:
                break
        if self._engine is not None and self.args.vllm_enable_sleep_mode:  # the update takes its memory
            self._engine.sleep()
            self.forget_sent_weights()  # the next `send_weights` wakes it
        self.record("train", metrics.filter_metrics(rollout, kept))
        # Processes share the rows evenly.
        chosen = rollout.select(kept).balanced(self.accelerator.num_processes, gather_object)
        advantages = None
        if kept:
            advantages = self.advantages(chosen)
            checks.check_advantages(
                advantages, len(chosen.summaries), (len(chosen.trajectories), chosen.completion_length)
            )
        else:
            logger.warning("step %d: the filter kept no group of a rollout", self.state.global_step + 1)
        if self.observers:
            event = observe(self.state.global_step, rollout, kept, chosen, advantages, gather_object)
            for observer in self.observers:
                observer.on_rollout(event)
        batch, accumulation = self._rows_to_train(rollout, chosen, advantages), self.args.gradient_accumulation_steps
        parts = micro_batches(
            batch,
            self.args.steps_per_generation,
            accumulation,
            self.args.per_device_train_batch_size,
            self.accelerator.gather,
            self._scorer.shares_prefixes,
        )
        add_step_totals(parts, accumulation, self.accelerator.num_processes, self._total)
        return parts

    def _play(self, rows: list[dict[str, Any]], attempt: int = 0) -> RolloutBatch:
        """Play a rollout's rows, or those of its extra rollout ``attempt``, on all processes, and reward all of it."""
        began = time.perf_counter()
        first = self.accelerator.process_index * len(rows)
        entropy, which = [self.args.seed, True, self.state.global_step], [0, attempt] if attempt else []
        # A group shares the start state of its rows; every trajectory has its own outcome and sampling seed.
        starts = [
            Start.drawn(row["seed"], [*entropy, row["seed"], first + index, *which], reset_options(row))
            for index, row in enumerate(rows)
        ]
        played = self._played(rows, starts, self._teacher)
        seconds = time.perf_counter() - began
        rollout, logged = self._rewarded(rows, played, self.num_generations)
        known = self._tasks.metric_names[: len(self._tasks.specs)]
        figures = metrics.rollout_figures(rollout, known, self.reward_func_names, self.args.scale_rewards)
        if not attempt:
            checks.check_failures(played, figures["rollout/env_failures"], len(rollout.summaries))
        self.state.num_input_tokens_seen += sum(summary.tokens for summary in rollout.summaries)
        tokens = float(self.state.num_input_tokens_seen)
        self.record("train", {**figures, **logged, "rollout/seconds": seconds, "num_tokens": tokens})
        return rollout

    def _played(
        self, rows: Sequence[Mapping[str, Any]], starts: list[Start], teacher: Teacher | None = None
    ) -> list[Trajectory]:
        envs = self._envs.take([self._tasks.evaluated[row["env_index"]] for row in rows])
        with self.unwrapped_model() as model:
            policy = self.policy(self.temperature, model)
            try:
                played = self.rollout(starts, envs, policy if teacher is None else Taught(policy, teacher))
            except EnvResetError:  # between two updates nothing need be lost; other processes may not have failed
                saves = self.is_in_train and self.state.global_step > 0 and self.args.save_strategy != "no"
                if saves and self.accelerator.num_processes == 1:
                    self._save_checkpoint(self.model, None)
                raise
        checks.check_played(played, starts)
        return played

    def _play_together(
        self, rows: Sequence[Mapping[str, Any]], starts: Sequence[Start]
    ) -> tuple[RolloutBatch, dict[str, float]]:
        """Play rows that all processes know, each its share; the first comes again where a process would have fewer.

        Returns:
            All of it, in the order of the rows and then the repeated ones, and what reward functions logged.
        """
        processes = self.accelerator.num_processes
        local = -(-len(rows) // processes)
        padded = [*range(len(rows)), *[0] * (local * processes - len(rows))]
        own = padded[self.accelerator.process_index * local :][:local]
        mine = [rows[place] for place in own]
        return self._rewarded(mine, self._played(mine, [starts[place] for place in own]), 1)

    def _rewarded(
        self, rows: Sequence[Mapping[str, Any]], played: list[Trajectory], group_size: int
    ) -> tuple[RolloutBatch, dict[str, float]]:
        """What was played with the rewards of all functions, and what these functions logged.

        Raises:
            ValueError: If a reward is not finite.
        """
        decode = partial(self.tokenizer.decode, skip_special_tokens=True)
        prompts = [[{"role": "user", "content": one.turns[0].observation}] for one in played]
        ids = [list(one.token_ids[len(one.turns[0].prompt_ids) :]) for one in played]  # all after the first prompt
        completions = [[{"role": "assistant", "content": decode(of_one) if self._extra else ""}] for of_one in ids]
        given = [
            {**row, "prompt": prompt, "trajectory": one, "episode_return": one.episode_return}
            for row, prompt, one in zip(rows, prompts, played, strict=True)
        ]
        rewards, logged = trl_seams.rewards_by_function(self, given, prompts, completions, ids)
        if not bool(torch.isfinite(rewards[:, 0]).all()) or bool(rewards.isinf().any()):
            raise ValueError(f"the environment and reward functions paid {rewards.tolist()}; rewards must be finite")
        names = self._tasks.metric_names
        pairs = [(one, row["env_index"]) for one, row in zip(played, rows, strict=True)]
        summaries = gather_object([TrajectorySummary.of(one, names[task], task) for one, task in pairs])
        warn_of_unlike_starts(summaries)
        # An episode whose environment failed says nothing about the policy: it has no outcome.
        rewards[[summary.failed for summary in summaries]] = torch.nan
        rollout = RolloutBatch(
            trajectories=played,
            rank=self.accelerator.process_index,
            ranks=tuple(row // len(rows) for row in range(len(summaries))),
            rewards=rewards,
            weights=self.reward_weights.to(rewards.device),
            summaries=summaries,
            group_size=group_size,
            pad_id=self.tokenizer.pad_token_id,
        )
        return rollout, logged

    def _refill_rows(self, attempt: int) -> list[dict[str, Any]]:
        """This process's rows of an extra rollout (``attempt`` from 1), repeated within groups as TRL repeats them."""
        rollouts_before = self.state.global_step // self.args.steps_per_rollout
        rows = self._tasks.refill_rows(rollouts_before, attempt - 1)
        repeated = [row for row in rows for _ in range(self.num_generations)]
        local = len(repeated) // self.accelerator.num_processes
        first = self.accelerator.process_index * local
        return [dict(row) for row in repeated[first : first + local]]

    def _rows_to_train(
        self, rollout: RolloutBatch, chosen: RolloutBatch, advantages: torch.Tensor | None
    ) -> dict[str, Any]:
        """A row for each segment of the chosen trajectories, with what the loss compares with; or filler.

        Behind them is a row for each episode of the rollout that an oracle watched: its reply at one of the turns.
        """
        source, used = chosen, True
        if advantages is None or not chosen.trajectories:  # a row to make filler of
            source, used = replace(rollout, trajectories=rollout.trajectories[:1]), False
            shape = (1,) if advantages is None or advantages.ndim == 1 else (1, source.completion_length)
            local = rollout.rewards.new_zeros(shape)
        else:
            local = advantages[chosen.local_indices] if advantages.ndim == 1 else advantages
        random = np.random.default_rng([self.args.seed, self.state.global_step, 1, self.accelerator.process_index])
        told = [found for one in rollout.trajectories if (found := corrections(one))]
        lessons = [found[random.integers(len(found))] for found in told]
        batch = segment_rows(source.trajectories, local, sampled_mask(source.batch), source.pad_id, lessons)
        trained = [used and one.limit not in FAILURES for one in source.trajectories] + [True] * len(lessons)
        rows = [row for row, owner in enumerate(batch["trajectory"].tolist()) if trained[owner]]
        here = torch.tensor([max(1, len(rows))], device=self.accelerator.device)
        most = int(self.accelerator.gather(here).max())  # as many passes on every process
        batch = select_rows(batch, rows, most)
        if advantages is not None or self._teacher is not None:
            with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
                self._add_scores(batch)
        # In which order rows are dealt to the updates of a rollout follows from the seed and the step alone.
        entropy = [self.args.seed, self.state.global_step, 0, self.accelerator.process_index]
        order = np.random.default_rng(entropy).permutation(len(batch["advantages"]))
        return {key: chosen_rows(value, torch.from_numpy(order)) for key, value in batch.items()}

    def _add_scores(self, batch: dict[str, Any]) -> None:
        """Add the log-probabilities that the loss compares with: before the update, and under the reference."""
        args, rows_a_pass = self.args, self.args.per_device_train_batch_size
        corrects = self.use_vllm and args.vllm_importance_sampling_correction
        if corrects or args.steps_per_rollout > 1:
            batch["old_per_token_logps"] = self._scorer(self.model, batch, rows_a_pass, entropies=False).logprobs
        if corrects:
            old, sampled, mask = batch["old_per_token_logps"], batch["sampling_per_token_logps"], sampled_mask(batch)
            low, high = args.vllm_importance_sampling_clip_min, args.vllm_importance_sampling_clip_max
            ratio, beyond = sampler_ratio(old, sampled, mask, args.vllm_importance_sampling_mode, low, high)
            batch["importance_sampling_ratio"] = ratio
            columns = {"sampling/importance_sampling_ratio/mean": ratio, "sampling/ratio_cut_share": beyond.float()}
            self._means.add(columns, mask)
            gaps = (old - sampled).abs()
            self._means.add({"sampling/sampling_logp_difference/mean": gaps}, mask & ~gaps.isnan())
        self._add_reference_scores(batch)

    def _add_reference_scores(self, batch: dict[str, Any]) -> None:
        if self.reference is not None:
            rows_a_pass = self.args.per_device_train_batch_size
            with self.reference.model() as model:
                batch["ref_per_token_logps"] = self._scorer(model, batch, rows_a_pass, entropies=False).logprobs

    def _total(self, local: torch.Tensor) -> torch.Tensor:
        """The sum over all processes."""
        total: torch.Tensor = self.accelerator.reduce(local, reduction="sum")
        return total

    # From a micro-batch to a loss

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """`policy_loss`, a router's loss and the entropy bonus of one micro-batch, checked and logged."""
        last = self.accelerator.sync_gradients  # the update's last micro-batch
        warms_up = self.critic is not None and self.state.global_step < self.args.critic_warmup_steps
        skips = warms_up or bool(inputs["skip"])  # while the critic warms up, it alone learns
        if skips or (inputs["empty"] and not last):
            if not self.is_deepspeed_enabled:
                # Nothing to learn: a loss that no parameter depends on leaves every gradient None, and an optimizer
                # skips parameters without gradient (no momentum step, no weight decay). The last micro-batch of a step
                # is computed even if it is filler, because processes exchange gradients in it.
                return torch.zeros((), device=self.accelerator.device, requires_grad=True)
            # Its engine wants a loss with a graph, and takes every step: one with gradients of 0, and where nothing is
            # learnt with the learning rate 0, until the schedule sets it again.
            if skips and last:
                for group in self.optimizer.param_groups:
                    group["lr"] = 0.0
            return 0.0 * self._scorer(model, inputs, entropies=False).logprobs.sum()
        inputs["scored"] = scored = list[Scores]()
        loss = self.policy_loss(model, inputs)
        del inputs["scored"]
        checks.check_loss(loss, scored)
        scores, mask = scored[-1], sampled_mask(inputs)
        assert scores.entropies is not None
        columns = {"entropy": scores.entropies}
        if "ref_per_token_logps" in inputs:
            # Masked before the exponential: elsewhere the policies may differ so much that it overflows.
            reference = inputs["ref_per_token_logps"].masked_fill(~mask, 0.0)
            columns["kl"] = kl_penalty(scores.logprobs.masked_fill(~mask, 0.0), reference, "k3")
        self._means.add(columns, mask)
        self._means.add_loss(loss)
        if scores.router_loss is not None:
            loss = loss + self.router_aux_loss_coef * scores.router_loss * inputs["token_share"]
        if self.args.entropy_coef:
            entropy = scores.entropies.masked_fill(~mask, 0.0).sum() / inputs["step_tokens"]
            loss = loss - self.args.entropy_coef * entropy
        if self.args.oracle_coef:
            written = oracle_mask(inputs)
            weight = self.args.oracle_coef * (1 - self.state.global_step / self.state.max_steps)
            loss = loss - weight * scores.logprobs.masked_fill(~written, 0.0).sum() / inputs["step_oracle_tokens"]
            self._means.add({"oracle/nll": -scores.logprobs}, written)
        self._check_update(loss, scores, inputs, mask)
        if last:
            processes = self.accelerator.num_processes
            own, of_hook = (means.taken(self._total, processes) for means in (self._means, self._means_of_hook))
            self.record("train", own | of_hook)
        return loss

    def _check_update(self, loss: torch.Tensor, scores: Scores, inputs: Mapping[str, Any], mask: torch.Tensor) -> None:
        """Stop all processes if a loss is not finite, or the first rollout was sampled from another distribution."""
        sampled = inputs["sampling_per_token_logps"]
        apart = (scores.logprobs - sampled)[mask & ~sampled.isnan()].exp().sub(1).abs()  # NaN: vLLM does not know it
        deviation = apart.max() if apart.numel() else apart.new_zeros(())
        found = torch.stack([deviation.float(), (~torch.isfinite(loss.detach())).float()])
        largest, anywhere = self.accelerator.gather(found[None]).max(dim=0).values.tolist()  # (processes, 2)
        if anywhere:
            checks.raise_not_finite(loss, f"step {self.state.global_step + 1}")
        self._means.add_largest("sampling/ratio_deviation_max", largest)
        if self._gaps is not None and not inputs["skip"] and self.state.global_step % self.args.steps_per_rollout == 0:
            self._gaps.append(measure_gap(scores.logprobs, inputs, self._sampler_slack))
            if self.accelerator.sync_gradients:
                gaps, self._gaps = self._gaps, None
                if self.check_gap_to_sampler(torch.cat(gaps)).tokens == 0:
                    self._gaps = []  # only an oracle's replies were learnt; the next rollout tells

    @property
    def _sampler_slack(self) -> float:
        """Nats by which the sampler may be above the trainer: vLLM's values are from after top-k and top-p."""
        if not self.use_vllm or (self.top_p == 1 and not self.top_k):
            return 0.0
        return math.inf if self.top_k else -math.log(self.top_p)

    def check_gap_to_sampler(self, parts: torch.Tensor) -> Gap:
        """Compare with the sampler, by each process's results of `measure_gap`; may raise `SamplerMismatchError`."""
        gap, model = Gap.of(self.accelerator.gather(parts)), self.accelerator.unwrap_model(self.model)
        name = f"{model.config.name_or_path or 'a model in memory'} ({model.config.model_type})"
        allowed = tolerance_of(model, self.accelerator.mixed_precision, self.args)
        check_gap(gap, allowed, name, self.args.sampler_check == "stop")
        return gap

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        if norm is not None and not self.args.fp16:  # whose loss scaler skips such a step itself
            checks.check_gradient(float(norm), self.state.global_step + 1, taken=self.is_deepspeed_enabled)
        if norm == 0 and not self.is_deepspeed_enabled:
            # Nothing to learn, and no entropy bonus or KL that pulls. A step would move the weights by momentum and
            # decay, and shrink the second moment, so the next gradient would be divided by too little: an optimizer
            # skips what has no grad.
            model.zero_grad(set_to_none=True)
        return norm

    # Evaluation during training

    def evaluate(
        self, eval_dataset: Dataset | None = None, ignore_keys: list[str] | None = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Play start states and log what came out; for success with an interval, see `ragen_trl.evaluate`.

        Every row counts once. There is no loss: advantages are those within a group, so it would be about 0 whatever
        the model does.

        Args:
            eval_dataset: Start states, described as for ``train_dataset``, in any environment, with any seeds. Unset:
                those of the constructor, or ``args.num_eval_seeds`` held-out ones.
            ignore_keys: Not read.
            metric_key_prefix: As in TRL.
        """
        at_once = self.args.per_device_eval_batch_size * self.accelerator.num_processes
        rows = self.eval_dataset if eval_dataset is None else self._tasks.evaluation_rows(eval_dataset, held_out=False)
        trained, _ = self.model.training, self.model.eval()
        try:
            figures = {f"{metric_key_prefix}_{key}": value for key, value in self._evaluated(rows, at_once).items()}
            self.log(figures)  # TRL adds the metrics of the mode that the model is in
            self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, figures)
        finally:
            self.model.train(trained)
        return figures

    def _evaluated(self, dataset: Dataset, at_once: int) -> dict[str, float]:
        """The figures of all rows, played ``at_once`` on all processes together."""
        began = time.perf_counter()
        size = self.num_generations_eval
        rows = [dict(row) for row in dataset for _ in range(size)]
        given = [reset_options(row) for row in rows]
        parts = list[RolloutBatch]()
        for first in range(0, len(rows), at_once):
            places = range(first, min(first + at_once, len(rows)))
            starts = [
                Start.drawn(rows[place]["seed"], [self.args.seed, False, 0, rows[place]["seed"], place], given[place])
                for place in places
            ]
            part, logged = self._play_together([rows[place] for place in places], starts)
            self.record("eval", logged)
            last = part.trajectories
            shown = {"ranks": part.ranks, "rewards": part.rewards, "summaries": part.summaries}
            once = {name: column[: len(places)] for name, column in shown.items()}  # without the repeated ones
            parts.append(replace(part, trajectories=[], **once))
        rollout = replace(RolloutBatch.joined(parts), group_size=size)
        checks.check_failures(last, sum(one.failed for one in rollout.summaries), len(rollout.summaries))
        names, functions = self._tasks.metric_names, self.reward_func_names
        figures = metrics.rollout_figures(rollout, names, functions, self.args.scale_rewards)
        return {**figures, "runtime": time.perf_counter() - began}

    # Checkpoints and saved models

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        with writing(folder):
            self.save_algorithm_state(folder)
            super()._save_checkpoint(model, trial)
            finish_checkpoint(self, folder, self._facts, self._save_total_limit)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As in TRL; beside the model is ``play.json``, which says how it is played with, and last a manifest.

        Checkpoints of FSDP2 with ``state_dict_type: SHARDED_STATE_DICT`` have no whole weights; what a
        user asks for does.
        """
        folder = Path(output_dir or self.args.output_dir)
        with writing(folder):
            plugin = self.accelerator.state.fsdp_plugin if self.is_fsdp_enabled else None
            if plugin is not None and not _internal_call and "SHARDED" in str(plugin.state_dict_type):
                self._save(str(folder), self.accelerator.get_state_dict(self.model))
            super().save_model(output_dir, _internal_call)
            if self.args.should_save:
                if self.pictures is not None:
                    self.pictures.save(folder)
                save_play_options(folder, self._tasks.specs, self.args)
                if not _internal_call:  # a checkpoint has more files to come
                    # The output folder has checkpoints beside the model.
                    seal(folder, {**self._facts, **provenance()}, "*")

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
        if self._sent_step != self.state.global_step:
            with profiling_context(self, "sync_weights"):
                send_weights(self.vllm_generation)
            self._sent_step = self.state.global_step

    def forget_sent_weights(self) -> None:
        """Make the next `send_weights` send the present weights, whichever vLLM has."""
        self._sent_step = -1  # the optimizer step whose weights it has
