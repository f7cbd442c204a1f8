"""The playing half of a trainer: whole trajectories in the place of TRL's completions, up to what was sampled.

Wiring only. Seams of TRL 1.16 this leans on, each pinned by a contract test:

- ``rollout_func`` may return ``env_mask``, which becomes the loss mask's ``tool_mask``, and lists that reward functions
  then receive (``trajectory``);
- ``_generate_and_score_completions(inputs)`` sees the dataset rows, already repeated ``num_generations`` times with
  groups contiguous;
- ``_calculate_rewards`` returns the rewards of all processes, (B_global, functions);
- with ``use_vllm`` there is a ``vllm_generation`` with the weights of step ``_last_loaded_step``: TRL sends them anew
  where that is not ``global_step``, and so do we, before we play.
"""

import os
import time
import warnings
from abc import ABC
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from datasets import Dataset
from peft import PeftConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOTrainer
from trl.extras.profiling import profiling_context
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.utils import RepeatSampler

from ragen_envs import AgentTurns
from ragen_trl.batching.batch import to_rollout_output
from ragen_trl.batching.returns import raw_returns
from ragen_trl.batching.rollout_batch import RolloutBatch, TrajectorySummary
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.policies.model_support import check_policy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm import VLLMPolicy
from ragen_trl.policies.vllm_engines import check_loadable, connect, unchanged_base
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.environments import make_chat
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.rollout.tasks import EnvLike, Tasks
from ragen_trl.trainers.checks import check_failures, check_played, checked_rewards
from ragen_trl.trainers.metrics import rollout_metrics
from ragen_trl.trajectory import Trajectory

RewardFunction = Callable[..., list[float]]


class LaunchError(UserError, RuntimeError):
    """Several processes were launched, but not as one run."""


def environment_return(episode_return: list[float], **_: Any) -> list[float]:
    """The reward function handed to TRL: each trajectory's undiscounted return, format penalties included."""
    return episode_return


class RolloutTrainer(GRPOTrainer, ABC):
    """Plays episodes with the model in training and has TRL score them.

    Args:
        model: Path or hub id of a causal language model, or the model itself.
        env: A Gymnasium id, a function that makes an environment, an ``EnvSpec``, or a list of these: groups of all of
            them are then played in every rollout, as often as ``args.env_weights`` say. Anything but an
            ``AgentTurns`` is wrapped in one, with the turn limits of ``args``.
        args: The configuration.
        processing_class: The tokenizer; loaded with the model if unset.
        reward_funcs: TRL reward functions to add to the environment's return; weights (``reward_weights``) count
            the environment's return first. They also get ``trajectory``, a list of `Trajectory`.
        callbacks: As in TRL.
        optimizers: As in TRL.
        peft_config: As in TRL.
        train_dataset: In the place of ``env``: start states of one's own, columns ``env`` (id), ``seed`` and, if
            wanted, ``kwargs`` (of ``gymnasium.make``). Reward functions get all other columns.

    Raises:
        ModelNotFoundError: If ``model`` names nothing that can be loaded.
        gymnasium.error.NameNotFound: If ``env`` is an unknown id.
        EnvSpecError: If environments are missing, described twice, or cannot share a run.
        StartStateError: If start states or weights do not fit the run.
        SeedOverlapError: If training would use start states that are kept for evaluation.
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
        check_policy(model, None if peft_config is not None else args.beta)
        check_loadable(model, args)
        self._envs = EnvPool(args)
        self._tasks = Tasks(env, train_dataset, args)
        if self._tasks.ordered:
            args.shuffle_dataset = False  # TRL would mix rows that belong to one rollout with those of others
        self._played: list[Trajectory] = []
        self._rewards = torch.empty(0)
        with warnings.catch_warnings():  # of a seam that may change: the release is pinned, and contract tests watch it
            warnings.filterwarnings("ignore", "You are using 'rollout_func'", UserWarning)
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
                rollout_func=lambda prompts, trainer: to_rollout_output(trainer._played),
            )
        self._check_launch()
        # Not accelerator.autocast: making another configuration resets the state that it looks up.
        precision = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.accelerator.mixed_precision)
        device = self.accelerator.device.type
        self._autocast = partial(torch.autocast, device, dtype=precision, enabled=precision is not None)
        self.chat = make_chat(self._tokenizer, self._envs.take(self._tasks.specs)[0], args)
        self._engine = connect(self.vllm_generation, self.accelerator) if self.use_vllm else None

    def _check_launch(self) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) > self.accelerator.num_processes:
            raise LaunchError(
                f"launched as {os.environ['WORLD_SIZE']} processes, which do not see one another: each would train "
                "alone, into the same folder; on the CPU set use_cpu=True and launch with torchrun"
            )
        if self.is_fsdp_enabled:
            raise LaunchError(
                "FSDP gathers weights in every forward pass, and rollouts take another number of passes on each "
                "process; launch with DDP or DeepSpeed ZeRO-2 (accelerate launch --multi_gpu, with LoRA to save memory)"
            )

    def rollout(self, starts: list[Start], envs: list[AgentTurns], policy: Policy) -> list[Trajectory]:
        """Hook: play one episode per start. Override it to sample in another way (contexts, tools, backends).

        Args:
            starts: Start state, outcomes and sampling of each episode.
            envs: One environment per start.
            policy: What plays: the model in training, or A*-PO's reference.
        """
        return self._envs.play(envs, policy, starts)

    def policy(self, temperature: float = 1.0, model: PreTrainedModel | None = None) -> Policy:
        """The model as a policy, for ``evaluate`` and ``play``: it samples as training does.

        Behind a vLLM server (``vllm_mode="server"``) all processes have to play together, as often as one another.

        Args:
            temperature: Divides the logits; 0 is greedy.
            model: The unwrapped model, where a wrapper was taken off already.
        """
        limit = self.args.max_reply_length
        sampling = Sampling(limit, temperature, self.top_k, self.top_p, self.args.stop_at_answer)
        unwrapped = model if model is not None else self.accelerator.unwrap_model(self.model)
        if self._engine is None:
            return TransformersPolicy(unwrapped, self.chat, sampling, self._autocast)
        if model is None:  # who asks between updates may have loaded other weights: another checkpoint, the best one
            self._last_loaded_step = -1
        longest = self.args.max_completion_length
        return VLLMPolicy(self._engine, unwrapped, self.chat, sampling, longest, self._refresh_engine)

    def _refresh_engine(self) -> None:
        """Send vLLM the weights of this step, unless it has them."""
        if self._last_loaded_step != self.state.global_step:
            with profiling_context(self, "sync_weights"), unchanged_base(self.vllm_generation.model):
                self.vllm_generation.sync_weights()
            self._last_loaded_step = self.state.global_step

    def _sample(self, rows: list[dict[str, Any]], attempt: int = 0) -> RolloutBatch:
        """Play the rows and let TRL score what was played."""
        mode = "train" if self.model.training else "eval"
        tasks = [self._tasks.index(row) for row in rows]
        envs = self._envs.take([self._tasks.specs[task] for task in tasks])
        started = time.perf_counter()
        with self._unwrapped_model() as model:
            starts = self._starts(rows, mode, attempt)
            self._played = self.rollout(starts, envs, self.policy(self.temperature, model))
        check_played(self._played, len(rows))
        seconds = self._metrics[mode]["rollout/seconds"]
        seconds.append(time.perf_counter() - started + (seconds.pop() if attempt else 0.0))
        shown = [
            {**row, "prompt": [{"role": "user", "content": trajectory.turns[0].observation}]}
            for row, trajectory in zip(rows, self._played, strict=True)
        ]
        batch = super()._generate_and_score_completions(shown)
        names = [self._tasks.names[task] for task in tasks]
        measured = rollout_metrics(self._played, names, self._tasks.names, self._total, self.accelerator.device)
        self._record(mode, measured)
        summaries = [TrajectorySummary.of(*of) for of in zip(self._played, names, tasks, strict=True)]
        everyone = gather_object(summaries)
        if mode == "train" and not attempt:
            check_failures(self._played, measured["rollout/env_failures"], len(everyone))
        return RolloutBatch(
            trajectories=self._played,
            rank=self.accelerator.process_index,
            ranks=tuple(row // len(rows) for row in range(len(everyone))),
            rewards=self._rewards,
            weights=self.reward_weights.to(self._rewards.device),
            summaries=everyone,
            group_size=self.num_generations if mode == "train" else 1,
            batch=batch,
        )

    def _starts(self, rows: list[dict[str, Any]], mode: str, attempt: int) -> list[Start]:
        """Start states come from the rows, shared by a group; outcomes and sampling are each trajectory's own."""
        step = self.state.global_step if mode == "train" else 0
        offset = self.accelerator.process_index * len(rows)
        within = self._micro_step
        which = [within, attempt] if attempt else [within] * (within > 0)
        return [
            Start.drawn(row["seed"], [self.args.seed, mode == "train", step, row["seed"], offset + index, *which])
            for index, row in enumerate(rows)
        ]

    @property
    def _micro_step(self) -> int:
        """Micro-batches of this update so far: above 0 for a further rollout of it. TRL's count is not resumed."""
        return int(self._step % self.args.gradient_accumulation_steps)

    def _refill_rows(self, attempt: int) -> list[dict[str, Any]]:
        """This process's rows of an extra rollout, repeated within groups as TRL repeats those of the dataset."""
        passes = self.state.global_step * self.args.gradient_accumulation_steps + self._micro_step
        rollout = passes // (self.args.steps_per_generation * self.args.num_iterations)
        rows = self._tasks.refill_rows(rollout, attempt - 1)
        repeated = [row for row in rows for _ in range(self.num_generations)]
        local = len(repeated) // self.accelerator.num_processes
        first = self.accelerator.process_index * local
        return [dict(row) for row in repeated[first : first + local]]

    def _unwrapped_model(self) -> AbstractContextManager[PreTrainedModel]:
        if self.use_vllm:  # which generates with weights of its own: nothing to gather
            return nullcontext(self.accelerator.unwrap_model(self.model))
        return unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        )

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """As in TRL; a model from a folder has no page on the hub to be a fine-tuned version of."""
        super().create_model_card(*args, **kwargs)
        path = Path(self.args.output_dir) / "README.md"
        if self.is_world_process_zero() and path.is_file():
            text = path.read_text(encoding="utf-8").replace("[None](https://huggingface.co/None)", "a local model")
            path.write_text(text.replace('model="None"', 'model="path/to/this/folder"'), encoding="utf-8")

    def _get_eval_sampler(self, eval_dataset: Dataset) -> RepeatSampler:
        """In order: environments take turns in the rows, so that batches hold as many of each, and means are means."""
        return RepeatSampler(eval_dataset, mini_repeat_count=self.num_generations_eval, shuffle=False)

    def _calculate_rewards(self, *args: Any) -> torch.Tensor:
        rewards: torch.Tensor = super()._calculate_rewards(*args)
        if not bool(torch.isfinite(rewards[:, 0]).all()):
            raise ValueError(f"the environment paid {rewards[:, 0].tolist()}; rewards must be finite")
        self._rewards = rewards  # (B_global, F)
        return rewards

    def _raw_returns(self, trajectories: Sequence[Trajectory], tasks: Sequence[int]) -> list[float]:
        """What TRL's loop would make of episodes that train nobody: every reward function and its weight."""
        rows = [self._tasks.row(task, row.seed) for task, row in zip(tasks, trajectories, strict=True)]
        columns = {name: [row[name] for row in rows] for name in rows[0] if name != "prompt"}
        decode = partial(self._tokenizer.decode, skip_special_tokens=True)
        return raw_returns(trajectories, self.reward_funcs, self.reward_weights.tolist(), decode, columns)

    def _record(self, mode: str, values: dict[str, float]) -> None:
        for name, value in values.items():
            self._metrics[mode][name].append(value)

    def _total(self, local: torch.Tensor) -> torch.Tensor:
        """A tensor added up over all processes."""
        total: torch.Tensor = self.accelerator.reduce(local, reduction="sum")
        return total
