"""The first half of a trainer: it plays whole trajectories instead of TRL's completions, and has TRL score them."""

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from accelerate.utils import extract_model_from_parallel, gather_object
from datasets import Dataset, IterableDataset
from peft import PeftConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from ragen_envs import AgentTurns
from ragen_trl.batching.rollout_batch import RolloutBatch, TrajectorySummary
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.config.validation import warn_of_narrowed_sampling
from ragen_trl.errors import OptionError, UserError
from ragen_trl.policies.model_support import check_policy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vision.loading import local_policy, picture_processor
from ragen_trl.policies.vllm.engines import check_loadable
from ragen_trl.policies.vllm.policy import VLLMPolicy
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.environments import make_chat, unlike_recorded
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.rollout.tasks import EnvLike, Tasks
from ragen_trl.trainers.arguments import (
    ArgumentError,
    RewardFunction,
    aligned_processing_classes,
    check_arguments,
    check_columns,
    environment_return,
    listed_rewards,
    policy_for_trl,
    reward_name,
    unique_reward_names,
)
from ragen_trl.trainers.checks import check_failures, check_merged, check_played, checked_rewards
from ragen_trl.trainers.dropout import switch_off_dropout
from ragen_trl.trainers.metrics import mean_difficulties, rollout_means, rollout_sums
from ragen_trl.trainers.self_check import Tolerance, precision_of, tolerance_for
from ragen_trl.trainers.trl.adapter import TRLAdapter
from ragen_trl.trainers.trl.plain import keeps_weights_whole
from ragen_trl.trajectory import Trajectory

logger = logging.getLogger(__name__)

EvaluationRows: TypeAlias = Dataset | IterableDataset | dict[str, Dataset | IterableDataset]
"""What TRL takes for ``eval_dataset``."""


class LaunchError(UserError, RuntimeError):
    """The processes of a launch cannot train together."""


class RolloutTrainer(TRLAdapter):
    """Plays episodes with the model in training and has TRL score them.

    Args:
        model: Path or hub id of a causal language model, a GGUF file, or the model itself.
        env: A Gymnasium id, a function that makes an environment, an ``EnvSpec``, or a list of these. With a list every
            rollout has groups of all of them, in the shares of ``args.env_weights``. An environment that is not an
            ``AgentTurns`` is wrapped in one, with the turn limits of ``args``.
        args: The configuration.
        processing_class: The tokenizer; loaded with the model if unset.
        reward_funcs: TRL reward functions to add to the environment's return, also asynchronous ones and reward models;
            weights (``reward_weights``) count the environment's return first. They also get ``trajectory``, a list of
            `Trajectory`.
        callbacks: As in TRL.
        optimizers: As in TRL.
        peft_config: As in TRL.
        train_dataset: Your own start states, instead of ``env``: columns ``env`` (id), ``seed`` and, optionally,
            ``kwargs`` (of ``gymnasium.make``). Reward functions get all other columns.
        eval_dataset: Your own start states for TRL's evaluation during training, described in the same way, or several
            such data sets by name; instead of ``num_eval_seeds``.
        reward_processing_classes: As in TRL: the tokenizers of reward models, one for each of ``reward_funcs``.
        quantization_config: As in TRL, for a model that is given by its name.
        tools: Refused, with what to do instead.
        rollout_func: Refused, with what to do instead.
        environment_factory: Refused, with what to do instead.

    Raises:
        ArgumentError: If an argument is of the wrong kind or is refused, or reward functions would lack columns.
        ModelNotFoundError: If ``model`` names nothing that can be loaded.
        UnsupportedModelError: If ``model`` or ``peft_config`` is one whose tokens would be scored otherwise than they
            are sampled, or that is spread over several devices.
        gymnasium.error.NameNotFound: If ``env`` is an unknown id.
        EnvSpecError: If environments are missing, described twice, or cannot share a run.
        StartStateError: If start states or weights do not fit the run.
        SeedOverlapError: If training would use start states that are reserved for evaluation.
        ChatTemplateError: If the chat template cannot be used append-only.
        EngineError: If vLLM runs in this process and the model has no folder that it could be loaded from.
        VLLMServerError: If the vLLM server does not say how long its contexts are.
    """

    eval_dataset: Any

    def __init__(
        self,
        model: str | PreTrainedModel,
        env: EnvLike | Sequence[EnvLike] | None = None,
        args: StarPOConfig | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        reward_funcs: RewardFunction | list[RewardFunction] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        peft_config: PeftConfig | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: EvaluationRows | None = None,
        reward_processing_classes: PreTrainedTokenizerBase | list[PreTrainedTokenizerBase | None] | None = None,
        quantization_config: Any = None,
        tools: None = None,
        rollout_func: None = None,
        environment_factory: None = None,
    ) -> None:
        trls = {"tools": tools, "rollout_func": rollout_func, "environment_factory": environment_factory}
        check_arguments(env, processing_class, refused=trls)
        args, self._extra = self._checked_args(args), listed_rewards(reward_funcs)
        functions = self._functions(args)
        check_policy(model, args, peft_config)
        check_loadable(model, args, peft_config)
        self.pictures, processing_class = picture_processor(model, args, processing_class)
        warn_of_narrowed_sampling(args)
        self._envs = EnvPool(args)
        self._tasks = Tasks(env, train_dataset, args)
        if self._tasks.ordered:
            args.shuffle_dataset = False  # TRL would mix rows of different rollouts
        super().__init__(
            reward_funcs=functions,
            args=args,
            train_dataset=self._tasks.rows,
            eval_dataset=self._evaluation_rows(args, eval_dataset),
            processing_class=processing_class,
            reward_processing_classes=aligned_processing_classes(reward_processing_classes, len(self._extra)),
            callbacks=callbacks,
            optimizers=optimizers,
            quantization_config=quantization_config,
            peft_config=peft_config,
            model=policy_for_trl(model, args, peft_config, processing_class),
        )
        self.reward_func_names = unique_reward_names([reward_name(function) for function in functions])
        self._check_launch()
        self._switch_off_dropout()
        self._compare_with_record(model)
        self._autocast = self._make_autocast()
        seen = None if self.pictures is None else self.pictures.text
        self.chat = make_chat(self.tokenizer, self._envs.take(self._tasks.specs)[0], args, seen)

    def _make_autocast(self) -> Callable[[], torch.autocast]:
        """Not accelerator.autocast, which reads a global state that the next configuration resets."""
        precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.accelerator.mixed_precision)
        return partial(torch.autocast, self.accelerator.device.type, dtype=precision, enabled=precision is not None)

    def _checked_args(self, args: Any) -> StarPOConfig:
        if not isinstance(args, StarPOConfig):
            given = args if args is None or isinstance(args, str) else f"a {type(args).__name__}"
            raise OptionError(f"args is {given}; pass a StarPOConfig, which says where the run goes and how it plays")
        if args._trainer not in (None, *(kind.__name__ for kind in type(self).__mro__)):
            raise OptionError(
                f"args is a {type(args).__name__}, most of whose options {type(self).__name__} does not read; make a "
                f"{args._trainer} with it"
            )
        return args

    def _functions(self, args: StarPOConfig) -> list[Any]:
        functions = [environment_return, *map(checked_rewards, self._extra)]
        if args.reward_weights is not None and len(args.reward_weights) != len(functions):
            names = ", ".join(map(reward_name, functions))
            raise OptionError(f"reward_weights is {args.reward_weights}; give one each to {names}, in this order")
        return functions

    def _evaluation_rows(self, args: StarPOConfig, given: EvaluationRows | None) -> Any:
        if given is None:
            return self._rows_of(None) if args.eval_strategy != "no" else None
        rows = len(given) if isinstance(given, Dataset) else None
        if args.num_eval_seeds not in (type(args).num_eval_seeds, rows):
            raise ArgumentError(
                f"num_eval_seeds is {args.num_eval_seeds}, but the rows of eval_dataset decide that; leave it unset"
            )
        if isinstance(given, dict):
            return {name: self._rows_of(rows, held_out=True) for name, rows in given.items()}
        return self._rows_of(given, held_out=True)

    def _rows_of(self, given: Dataset | IterableDataset | None, held_out: bool = False) -> Dataset:
        tasks = self._tasks
        rows = tasks.evaluation_rows() if given is None else tasks.rows_for_evaluation(given, held_out)
        check_columns(self._extra, self._tasks.columns_missing(rows))
        return rows

    def evaluate(
        self,
        eval_dataset: EvaluationRows | str | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """As in TRL, on start states; for success with an interval, see `ragen_trl.evaluate`.

        Args:
            eval_dataset: Start states, described as for ``train_dataset``, in any environment, with any seeds. Unset:
                those of the constructor, or ``args.num_eval_seeds`` held-out ones.
            ignore_keys: As in TRL.
            metric_key_prefix: As in TRL.

        Raises:
            ArgumentError: If reward functions would lack columns.
            StartStateError, SeedOverlapError: If the rows do not describe start states.
            OptionError: If a batch of the evaluation is not a whole number of groups.
        """
        at_once = self.args.per_device_eval_batch_size * self.accelerator.num_processes
        if at_once % self.num_generations_eval:
            raise OptionError(
                f"an evaluation batch has {at_once} rows (per_device_eval_batch_size · processes), which "
                f"num_generations_eval {self.num_generations_eval} does not divide; change one of them"
            )
        if eval_dataset is None and self.eval_dataset is None:
            self.eval_dataset = self._rows_of(None)
        elif eval_dataset is not None and not isinstance(eval_dataset, str | dict):
            eval_dataset = self._rows_of(eval_dataset)
        metrics: dict[str, float] = super().evaluate(eval_dataset, ignore_keys, metric_key_prefix)
        return metrics

    def _check_launch(self) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > self.accelerator.num_processes:
            raise LaunchError(
                f"launched as {os.environ['WORLD_SIZE']} processes that are not connected: each would train alone, "
                "into the same folder; on the CPU set use_cpu=True and launch with torchrun"
            )
        if not keeps_weights_whole(self):
            raise LaunchError(
                "fsdp_version is 1, whose weights cannot be kept whole for a rollout; launch with fsdp_version 2"
            )
        check_merged(self)

    def _switch_off_dropout(self) -> None:
        off = switch_off_dropout(self.accelerator.unwrap_model(self.model))
        if off and self.is_world_process_zero():
            listed = ", ".join(f"{name} {value:g}" for name, value in sorted(off.items()))
            logger.warning("switched off, so that replies are scored by the network that sampled them: %s", listed)

    def _compare_with_record(self, model: str | PreTrainedModel) -> None:
        unlike = unlike_recorded(model if isinstance(model, str) else None, self._tasks.specs, self.args)
        if unlike and self.is_world_process_zero():
            logger.warning("%s has learnt to play in another way, says its play.json: %s", model, unlike)

    @property
    def num_rollouts(self) -> int:
        """Rollouts of the whole run, whose length is in ``max_steps`` or in ``num_train_epochs``."""
        args = self.args
        if args.max_steps > 0:
            return args.num_rollouts
        return math.ceil(args.num_train_epochs * (len(self.train_dataset) // args.groups_per_generation))

    @property
    def model_name(self) -> str:
        """What messages call the policy: its name, or its type if it was built in memory."""
        config = self.accelerator.unwrap_model(self.model).config
        return f"{config.name_or_path or 'a model in memory'} ({config.model_type})"

    @property
    def _tolerance(self) -> Tolerance:
        model = self.accelerator.unwrap_model(self.model)
        precision = precision_of(model, self.accelerator.mixed_precision, self.args.tf32)
        return tolerance_for(precision, getattr(model, "is_quantized", False), self.use_vllm, self.args.merge_lora)

    @property
    def _sampler_slack(self) -> float:
        """Nats by which the sampler may be above the trainer: vLLM's values are from after top-k and top-p."""
        if not self.use_vllm or (self.top_p == 1 and not self.top_k):
            return 0.0
        return math.inf if self.top_k else -math.log(self.top_p)

    def rollout(self, starts: list[Start], envs: list[AgentTurns], policy: Policy) -> list[Trajectory]:
        """Hook: play one episode per start, in one environment each. Override it to sample in another way.

        ``policy`` is the model in training, or A*-PO's reference.
        """
        return self._envs.play(envs, policy, starts)

    def policy(self, temperature: float = 1.0, model: PreTrainedModel | None = None) -> Policy:
        """The model as a policy, for ``evaluate`` and ``play``: it samples as training does; temperature 0 is greedy.

        With a vLLM server (``vllm_mode="server"``) all processes must play together, and equally often.
        """
        args = self.args
        sampling = Sampling(args.max_reply_length, temperature, self.top_k, self.top_p, args.stop_at_answer)
        unwrapped = model if model is not None else self.accelerator.unwrap_model(self.model)
        # Turns have other shapes every time, and a compiled model hides what it takes: play with its weights alone.
        unwrapped = extract_model_from_parallel(unwrapped, keep_torch_compile=False)
        if self._engine is None:
            return local_policy(unwrapped, self.chat, sampling, self._autocast, self.pictures, args.merge_lora)
        if model is None:  # between updates a caller may have loaded other weights, such as the best checkpoint's
            self.forget_sent_weights()
        longest = args.max_completion_length
        return VLLMPolicy(self._engine, unwrapped, self.chat, sampling, longest, self.send_weights)

    def _sample(self, rows: list[dict[str, Any]], attempt: int = 0) -> tuple[RolloutBatch, dict[str, Any]]:
        """Play the rows and let TRL score what was played: the rollout, and TRL's generation batch."""
        mode = "train" if self.model.training else "eval"
        tasks = [self._tasks.index(row) for row in rows]
        played, seconds = self._played(rows, mode, attempt)
        if attempt:
            self.add_to_last(mode, "rollout/seconds", seconds)
        else:
            self.record(mode, {"rollout/seconds": seconds})
        batch, rewards = self.score_trajectories(rows, played)
        known = self._tasks.names if mode == "train" else self._tasks.names_in_evaluation
        names = [known[task] for task in tasks]
        counted = len(rows) if mode == "train" else self.real_rows(len(rows))
        sums = rollout_sums(played, names, known, self._total, self.accelerator.device, counted)
        measured = rollout_means(sums)
        if mode == "train" or not self.record_evaluated(sums):
            self.record(mode, measured)
        everyone = gather_object([TrajectorySummary.of(*of) for of in zip(played, names, tasks, strict=True)])
        if mode == "train" and self.rollouts_before < self.args.curriculum_rollouts:
            self.record(mode, mean_difficulties(everyone, known, self._tasks.difficulty))
        if mode == "train" and not attempt:
            check_failures(played, measured["rollout/env_failures"], len(everyone))
        rollout = RolloutBatch(
            trajectories=played,
            rank=self.accelerator.process_index,
            ranks=tuple(row // len(rows) for row in range(len(everyone))),
            rewards=rewards,
            weights=self.reward_weights.to(rewards.device),
            summaries=everyone,
            group_size=self.num_generations if mode == "train" else 1,
            pad_id=self.tokenizer.pad_token_id,
        )
        return rollout, batch

    def _played(self, rows: list[dict[str, Any]], mode: str, attempt: int) -> tuple[list[Trajectory], float]:
        envs, started = self._environments(rows), time.perf_counter()
        with self.unwrapped_model() as model:
            starts = self._starts(rows, mode, attempt)
            played = self.rollout(starts, envs, self.policy(self.temperature, model))
        check_played(played, starts, self._places_differ)
        return played, time.perf_counter() - started

    @property
    def _places_differ(self) -> bool:
        return len(self._tasks.specs) > 1 or bool(self._extra)

    def _environments(self, rows: list[dict[str, Any]]) -> list[AgentTurns]:
        return self._envs.take([self._tasks.spec(self._tasks.index(row)) for row in rows])

    def _starts(self, rows: list[dict[str, Any]], mode: str, attempt: int, ahead: int = 0) -> list[Start]:
        """A group shares the start state of its rows; every trajectory has its own outcome and sampling seed."""
        step = self.state.global_step + ahead if mode == "train" else 0
        offset = self.accelerator.process_index * len(rows) + (0 if mode == "train" else self.rows_evaluated)
        within = self.micro_step
        which = [within, attempt] if attempt else [within] * (within > 0)
        return [
            Start.drawn(row["seed"], [self.args.seed, mode == "train", step, row["seed"], offset + index, *which])
            for index, row in enumerate(rows)
        ]

    def _refill_rows(self, attempt: int, played: Sequence[TrajectorySummary] = ()) -> list[dict[str, Any]]:
        """This process's rows of an extra rollout (``attempt`` from 1), repeated within groups as TRL repeats them.

        ``played`` is all that was played for this update before, for an algorithm that chooses by it.
        """
        rows = self._tasks.refill_rows(self.rollouts_before, attempt - 1)
        repeated = [row for row in rows for _ in range(self.num_generations)]
        local = len(repeated) // self.accelerator.num_processes
        first = self.accelerator.process_index * local
        return [dict(row) for row in repeated[first : first + local]]

    def _total(self, local: torch.Tensor) -> torch.Tensor:
        total: torch.Tensor = self.accelerator.reduce(local, reduction="sum")
        return total
