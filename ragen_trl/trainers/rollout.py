"""The first half of a trainer: it plays whole trajectories instead of TRL's completions, and has TRL score them.

Only wiring; what it needs of TRL's inside is in `trl_adapter`.
"""

import logging
import math
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from peft import PeftConfig, PeftModel
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from ragen_envs import AgentTurns
from ragen_trl.batching.returns import raw_returns
from ragen_trl.batching.rollout_batch import RolloutBatch, TrajectorySummary
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.config.validation import warn_of_narrowed_sampling
from ragen_trl.errors import UserError
from ragen_trl.policies.model_support import check_policy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm import VLLMPolicy
from ragen_trl.policies.vllm_engines import check_loadable, connect
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.environments import make_chat
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.rollout.tasks import EnvLike, Tasks
from ragen_trl.trainers.checks import check_failures, check_played, checked_rewards
from ragen_trl.trainers.dropout import switch_off_dropout
from ragen_trl.trainers.metrics import rollout_metrics
from ragen_trl.trainers.self_check import Tolerance, tolerance_for
from ragen_trl.trainers.trl_adapter import TRLAdapter
from ragen_trl.trajectory import Trajectory

logger = logging.getLogger(__name__)

RewardFunction = Callable[..., list[float]]


class LaunchError(UserError, RuntimeError):
    """The processes of a launch cannot train together."""


def environment_return(episode_return: list[float], **_: Any) -> list[float]:
    """The first reward function that TRL gets: each trajectory's undiscounted return, format penalties included."""
    return episode_return


class RolloutTrainer(TRLAdapter):
    """Plays episodes with the model in training and has TRL score them.

    Args:
        model: Path or hub id of a causal language model, or the model itself.
        env: A Gymnasium id, a function that makes an environment, an ``EnvSpec``, or a list of these. With a list every
            rollout has groups of all of them, in the shares of ``args.env_weights``. An environment that is not an
            ``AgentTurns`` is wrapped in one, with the turn limits of ``args``.
        args: The configuration.
        processing_class: The tokenizer; loaded with the model if unset.
        reward_funcs: TRL reward functions to add to the environment's return; weights (``reward_weights``) count
            the environment's return first. They also get ``trajectory``, a list of `Trajectory`.
        callbacks: As in TRL.
        optimizers: As in TRL.
        peft_config: As in TRL.
        train_dataset: Your own start states, instead of ``env``: columns ``env`` (id), ``seed`` and, optionally,
            ``kwargs`` (of ``gymnasium.make``). Reward functions get all other columns.

    Raises:
        ModelNotFoundError: If ``model`` names nothing that can be loaded.
        UnsupportedModelError: If ``model`` or ``peft_config`` is one whose tokens would be scored otherwise than they
            are sampled, or that is spread over several devices.
        gymnasium.error.NameNotFound: If ``env`` is an unknown id.
        EnvSpecError: If environments are missing, described twice, or cannot share a run.
        StartStateError: If start states or weights do not fit the run.
        SeedOverlapError: If training would use start states that are reserved for evaluation.
        ChatTemplateError: If the chat template cannot be used append-only.
        EngineModelError: If vLLM runs in this process and the model has no folder that it could be loaded from.
        VLLMServerError: If the vLLM server does not say how long its contexts are.
    """

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
    ) -> None:
        if not isinstance(args, StarPOConfig):
            raise ValueError(f"args is {args!r}; pass a StarPOConfig, which says where the run goes and how it plays")
        if args._trainer not in (None, *(kind.__name__ for kind in type(self).__mro__)):
            raise ValueError(
                f"args is a {type(args).__name__}, most of whose options {type(self).__name__} does not read; make a "
                f"{args._trainer} with it"
            )
        extra = [reward_funcs] if callable(reward_funcs) else reward_funcs or []
        functions = [environment_return, *map(checked_rewards, extra)]
        if args.reward_weights is not None and len(args.reward_weights) != len(functions):
            names = ", ".join(getattr(function, "__name__", str(function)) for function in functions)
            raise ValueError(f"reward_weights is {args.reward_weights}; give one each to {names}, in this order")
        check_policy(model, args, peft_config)
        check_loadable(model, args)
        warn_of_narrowed_sampling(args)
        self._envs = EnvPool(args)
        self._tasks = Tasks(env, train_dataset, args)
        if self._tasks.ordered:
            args.shuffle_dataset = False  # TRL would mix rows of different rollouts
        super().__init__(
            model=model,
            reward_funcs=functions,
            args=args,
            train_dataset=self._tasks.rows,
            eval_dataset=self._tasks.evaluation_rows() if args.eval_strategy != "no" else None,
            processing_class=processing_class,
            callbacks=callbacks,
            optimizers=optimizers,
            peft_config=peft_config,
        )
        self._check_launch()
        self._switch_off_dropout()
        # Not accelerator.autocast, which reads a global state that the next configuration resets.
        precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.accelerator.mixed_precision)
        device = self.accelerator.device.type
        self._autocast = partial(torch.autocast, device, dtype=precision, enabled=precision is not None)
        self.chat = make_chat(self.tokenizer, self._envs.take(self._tasks.specs)[0], args)
        self._engine = connect(self.vllm_generation, self.accelerator) if self.use_vllm else None

    def _check_launch(self) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > self.accelerator.num_processes:
            raise LaunchError(
                f"launched as {os.environ['WORLD_SIZE']} processes that are not connected: each would train alone, "
                "into the same folder; on the CPU set use_cpu=True and launch with torchrun"
            )
        if self.is_fsdp_enabled:
            raise LaunchError(
                "FSDP gathers weights in every forward pass, but in a rollout processes take different numbers of "
                "them; launch with DDP or DeepSpeed ZeRO-2 (accelerate launch --multi_gpu, with LoRA to save memory)"
            )

    def _switch_off_dropout(self) -> None:
        model = self.accelerator.unwrap_model(self.model)
        off = switch_off_dropout(model)
        for adapter in model.peft_config.values() if isinstance(model, PeftModel) else []:  # TRL was there first
            off |= {name: value for name, value in adapter.to_dict().items() if name.endswith("dropout") and value}
        if off and self.is_world_process_zero():
            listed = ", ".join(f"{name} {value:g}" for name, value in sorted(off.items()))
            logger.warning("switched off, so that replies are scored by the network that sampled them: %s", listed)

    @property
    def model_name(self) -> str:
        """What messages call the policy: its name, or its type if it was built in memory."""
        config = self.accelerator.unwrap_model(self.model).config
        return f"{config.name_or_path or 'a model in memory'} ({config.model_type})"

    @property
    def _tolerance(self) -> Tolerance:
        """How far the trainer's log-probabilities may be from the sampler's."""
        model = self.accelerator.unwrap_model(self.model)
        half = {"bf16": "bfloat16", "fp16": "float16"}.get(self.accelerator.mixed_precision)
        own = {torch.bfloat16: "bfloat16", torch.float16: "float16"}.get(model.dtype)
        precision = half or own or ("float16" if self.args.tf32 else "float32")
        return tolerance_for(precision, getattr(model, "is_quantized", False), self.use_vllm)

    @property
    def _sampler_slack(self) -> float:
        """By how much the sampler's log-probabilities may be above the trainer's, in nats.

        Those of `TransformersPolicy` are from before top-k and top-p; vLLM's are from after them.
        """
        if not self.use_vllm or (self.top_p == 1 and not self.top_k):
            return 0.0
        return math.inf if self.top_k else -math.log(self.top_p)

    def rollout(self, starts: list[Start], envs: list[AgentTurns], policy: Policy) -> list[Trajectory]:
        """Hook: play one episode per start. Override it to sample in another way (contexts, tools, backends).

        Args:
            starts: Start state, outcome seed and sampling seed of each episode.
            envs: One environment per start.
            policy: The model in training, or A*-PO's reference.
        """
        return self._envs.play(envs, policy, starts)

    def policy(self, temperature: float = 1.0, model: PreTrainedModel | None = None) -> Policy:
        """The model as a policy, for ``evaluate`` and ``play``: it samples as training does.

        With a vLLM server (``vllm_mode="server"``) all processes must play together, and equally often.

        Args:
            temperature: Divides the logits; 0 is greedy.
            model: The unwrapped model, where it is at hand.
        """
        limit = self.args.max_reply_length
        sampling = Sampling(limit, temperature, self.top_k, self.top_p, self.args.stop_at_answer)
        unwrapped = model if model is not None else self.accelerator.unwrap_model(self.model)
        if self._engine is None:
            return TransformersPolicy(unwrapped, self.chat, sampling, self._autocast)
        if model is None:  # between updates a caller may have loaded other weights, such as the best checkpoint's
            self.forget_sent_weights()
        longest = self.args.max_completion_length
        return VLLMPolicy(self._engine, unwrapped, self.chat, sampling, longest, self.send_weights)

    def _sample(self, rows: list[dict[str, Any]], attempt: int = 0) -> tuple[RolloutBatch, dict[str, Any]]:
        """Play the rows and let TRL score what was played: the rollout, and TRL's generation batch."""
        mode = "train" if self.model.training else "eval"
        tasks = [self._tasks.index(row) for row in rows]
        envs = self._envs.take([self._tasks.specs[task] for task in tasks])
        started = time.perf_counter()
        with self.unwrapped_model() as model:
            starts = self._starts(rows, mode, attempt)
            played = self.rollout(starts, envs, self.policy(self.temperature, model))
        check_played(played, len(rows))
        seconds = time.perf_counter() - started
        if attempt:
            self.add_to_last(mode, "rollout/seconds", seconds)
        else:
            self.record(mode, {"rollout/seconds": seconds})
        batch, rewards = self.score_trajectories(rows, played)
        names = [self._tasks.names[task] for task in tasks]
        measured = rollout_metrics(played, names, self._tasks.names, self._total, self.accelerator.device)
        self.record(mode, measured)
        summaries = [TrajectorySummary.of(*of) for of in zip(played, names, tasks, strict=True)]
        everyone = gather_object(summaries)
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

    def _starts(self, rows: list[dict[str, Any]], mode: str, attempt: int) -> list[Start]:
        """A group shares the start state of its rows; every trajectory has its own outcome and sampling seed."""
        step = self.state.global_step if mode == "train" else 0
        offset = self.accelerator.process_index * len(rows)
        within = self.micro_step
        which = [within, attempt] if attempt else [within] * (within > 0)
        return [
            Start.drawn(row["seed"], [self.args.seed, mode == "train", step, row["seed"], offset + index, *which])
            for index, row in enumerate(rows)
        ]

    def _refill_rows(self, attempt: int) -> list[dict[str, Any]]:
        """This process's rows of an extra rollout, repeated within groups as TRL repeats those of the dataset."""
        rows = self._tasks.refill_rows(self.rollouts_before, attempt - 1)
        repeated = [row for row in rows for _ in range(self.num_generations)]
        local = len(repeated) // self.accelerator.num_processes
        first = self.accelerator.process_index * local
        return [dict(row) for row in repeated[first : first + local]]

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """As in TRL, without the link to a page of the base model on the hub if it came from a folder."""
        super().create_model_card(*args, **kwargs)
        path = Path(self.args.output_dir) / "README.md"
        if self.is_world_process_zero() and path.is_file():
            text = path.read_text(encoding="utf-8").replace("[None](https://huggingface.co/None)", "a local model")
            path.write_text(text.replace('model="None"', 'model="path/to/this/folder"'), encoding="utf-8")

    def _raw_returns(self, trajectories: Sequence[Trajectory], tasks: Sequence[int]) -> list[float]:
        """The weighted sum of all reward functions, as in TRL's loop, for episodes that are not trained on."""
        rows = [self._tasks.row(task, row.seed) for task, row in zip(tasks, trajectories, strict=True)]
        columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        decode = partial(self.tokenizer.decode, skip_special_tokens=True)
        return raw_returns(trajectories, self.reward_funcs, self.reward_weights.tolist(), decode, columns)

    def _total(self, local: torch.Tensor) -> torch.Tensor:
        """A tensor added up over all processes."""
        total: torch.Tensor = self.accelerator.reduce(local, reduction="sum")
        return total
