"""StarPO on TRL's ``GRPOTrainer``: whole trajectories take the place of completions.

Wiring only. Seams of TRL 1.16 this leans on, each pinned by a contract test:

- ``rollout_func`` may return ``env_mask``, which becomes the loss mask's ``tool_mask``;
- ``_generate_and_score_completions(inputs)`` sees the dataset rows, already repeated ``num_generations`` times with
  groups contiguous, and its result is what ``_prepare_inputs`` splits into micro-batches;
- ``_calculate_rewards`` returns the rewards of all processes, (B_global, functions);
- ``_compute_loss`` reads ``advantages`` and divides by ``current_gradient_accumulation_steps``.
"""

import json
import logging
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import torch
from peft import PeftConfig
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOTrainer
from trl.models.utils import unwrap_model_for_generation

from ragen_envs import AgentTurns
from ragen_trl.advantages import group_advantages
from ragen_trl.batch import select_rows, to_rollout_output
from ragen_trl.checkpoints import last_whole_checkpoint
from ragen_trl.config import StarPOConfig
from ragen_trl.environments import make_chat, make_turns
from ragen_trl.evaluation import measure
from ragen_trl.filtering import group_std, most_uncertain_groups
from ragen_trl.model_loading import check_model
from ragen_trl.policies import TransformersPolicy
from ragen_trl.rollout import Start, play
from ragen_trl.sampling import Sampling
from ragen_trl.seeds import evaluation_rows, training_rows
from ragen_trl.trajectory import Trajectory

_TITLE = "RAGEN: Understanding Self-Evolution in LLM Agents via Multi-Turn Reinforcement Learning"

logger = logging.getLogger(__name__)

# Losses that TRL averages over rows: filler rows would dilute them.
_ROW_MEAN_LOSSES = ("grpo", "sapo", "dr_grpo", "luspo")


def environment_return(episode_return: list[float], **_: Any) -> list[float]:
    """The reward function handed to TRL: each trajectory's undiscounted return, format penalties included."""
    return episode_return


class StarPOTrainer(GRPOTrainer):
    """Train a language model as an agent, with StarPO or StarPO-S (RAGEN, arXiv 2504.20073).

    Args:
        model: Path or hub id of a causal language model, or the model itself.
        env: A Gymnasium id, or a function that makes an environment. Anything but an ``AgentTurns`` is wrapped in
            one, with the turn limits of ``args``.
        args: ``StarPOConfig`` or ``StarPOSConfig``.
        processing_class: The tokenizer; loaded with the model if unset.
        reward_funcs: TRL reward functions to add to the environment's return; weights (``reward_weights``) count
            the environment's return first.
        callbacks: As in TRL.
        optimizers: As in TRL.
        peft_config: As in TRL.

    Raises:
        ModelNotFoundError: If ``model`` names nothing that can be loaded.
        gymnasium.error.NameNotFound: If ``env`` is an unknown id.
        ChatTemplateError: If the chat template cannot be used append-only.

    Example:
        See the README: a LoRA run of Qwen2.5-0.5B-Instruct in ten lines.
    """

    _tag_names = ["trl", "ragen", "starpo"]
    _name = "StarPO"
    _paper = {
        "title": _TITLE,
        "id": "2504.20073",
        "citation": textwrap.dedent(f"""\
            @article{{wang2025ragen,
                title        = {{{{{_TITLE}}}}},
                author       = {{Zihan Wang and others}},
                year         = 2025,
                eprint       = {{arXiv:2504.20073}},
            }}"""),
    }

    def __init__(
        self,
        model: str | PreTrainedModel,
        env: str | Callable[[], gymnasium.Env[str, str]],
        args: StarPOConfig,
        processing_class: PreTrainedTokenizerBase | None = None,
        reward_funcs: list[Callable[..., list[float]]] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        peft_config: PeftConfig | None = None,
    ) -> None:
        if isinstance(model, str):
            check_model(model)
        self._env = env
        self._envs: list[AgentTurns] = [make_turns(env, args)]
        self._played: list[Trajectory] = []
        self._returns = torch.empty(0)
        self._scored_logprobs = torch.empty(0)
        super().__init__(
            model=model,
            reward_funcs=[environment_return, *(reward_funcs or [])],
            args=args,
            train_dataset=training_rows(args),
            eval_dataset=evaluation_rows(args.num_eval_seeds) if args.eval_strategy != "no" else None,
            processing_class=processing_class,
            callbacks=callbacks,
            optimizers=optimizers,
            peft_config=peft_config,
            rollout_func=lambda prompts, trainer: to_rollout_output(trainer._played),
        )
        self.chat = make_chat(self._tokenizer, self._envs[0], args)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        """As in TRL. ``resume_from_checkpoint=True`` takes the last checkpoint that was written whole.

        Raises:
            FileNotFoundError: If there is none.
            ValueError: If a checkpoint lies in the middle of the updates of one rollout, whose trajectories are gone.
        """
        if resume_from_checkpoint is True:
            found = last_whole_checkpoint(self.args.output_dir)
            if found is None:
                raise FileNotFoundError(f"no whole checkpoint in {self.args.output_dir!r}; train without resuming")
            resume_from_checkpoint = str(found)
        if resume_from_checkpoint:
            state = json.loads((Path(resume_from_checkpoint) / "trainer_state.json").read_text(encoding="utf-8"))
            if self.args.steps_per_rollout > 1 and state["global_step"] % self.args.steps_per_rollout:
                raise ValueError(
                    f"{resume_from_checkpoint} was saved between two updates on one rollout, which is gone; "
                    f"resume from a step that {self.args.steps_per_rollout:g} divides, and set save_steps to a multiple"
                )
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        mode = "train" if self.model.training else "eval"
        started = time.perf_counter()
        self._played = self._rollout(self._starts(inputs, mode))
        self._metrics[mode]["rollout/seconds"].append(time.perf_counter() - started)
        rows = [
            {**row, "prompt": [{"role": "user", "content": trajectory.turns[0].observation}]}
            for row, trajectory in zip(inputs, self._played, strict=True)
        ]
        batch = super()._generate_and_score_completions(rows)
        self._log_rollout(mode)
        return self._learn_from(batch) if mode == "train" else batch

    def _starts(self, rows: list[dict[str, Any]], mode: str) -> list[Start]:
        """Start states come from the rows, shared by a group; outcomes and sampling are each trajectory's own."""
        step = self.state.global_step if mode == "train" else 0
        offset = self.accelerator.process_index * len(rows)
        within = self._step % self.args.gradient_accumulation_steps  # a step may take several rollouts
        starts = []
        for index, row in enumerate(rows):
            entropy = [self.args.seed, mode == "train", step, row["seed"], offset + index] + [within] * (within > 0)
            starts.append(Start.drawn(row["seed"], entropy))
        return starts

    def _rollout(self, starts: list[Start]) -> list[Trajectory]:
        """Play one episode per start. Override to sample in another way (contexts, tools, backends)."""
        while len(self._envs) < len(starts):
            self._envs.append(make_turns(self._env, self.args))
        with unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        ) as model:
            policy = self.policy(self.temperature, model)
            return play(self._envs[: len(starts)], policy, starts, self.args.max_completion_length)

    def policy(self, temperature: float = 1.0, model: PreTrainedModel | None = None) -> TransformersPolicy:
        """The model as a policy, for ``evaluate`` and ``play``: it samples as training does.

        Args:
            temperature: Divides the logits; 0 is greedy.
            model: The unwrapped model, where a wrapper was taken off already.
        """
        sampling = Sampling(self.args.max_reply_length, temperature, self.top_k, self.top_p)
        unwrapped = model if model is not None else self.accelerator.unwrap_model(self.model)
        return TransformersPolicy(unwrapped, self.chat, sampling, self.accelerator.autocast)

    def _calculate_rewards(self, *args: Any) -> torch.Tensor:
        rewards: torch.Tensor = super()._calculate_rewards(*args)
        if not bool(torch.isfinite(rewards[:, 0]).all()):
            raise ValueError(f"environment {self._env!r} paid {rewards[:, 0].tolist()}; rewards must be finite")
        self._returns = (rewards * self.reward_weights.to(rewards.device)).nansum(dim=1)  # (B_global,)
        return rewards

    def _advantages(self, returns: torch.Tensor) -> torch.Tensor:
        """(B_global,) raw returns → (B_global,) or (B_global, T) advantages. Override for another estimator."""
        return group_advantages(returns, self.num_generations, self.args.baseline, self.args.scale_rewards)

    def _groups_to_train(self, returns: torch.Tensor) -> list[int]:
        """(B_global,) raw returns → indices of the groups to train on. Override for another filter."""
        stds = group_std(returns, self.num_generations)
        kept = most_uncertain_groups(stds, self.args.filter_ratio)
        metrics = self._metrics["train"]
        metrics["filter/in_group_std"].append(stds.mean().item())
        metrics["filter/kept_in_group_std"].append(stds[kept].mean().item() if kept else 0.0)
        metrics["filter/kept_groups"].append(len(kept))
        metrics["filter/trajectories_sampled"].append(returns.numel())
        metrics["filter/trajectories_used"].append(len(kept) * self.num_generations)
        return kept

    def _learn_from(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Narrow the generation batch to the kept groups and give it their advantages.

        Every process sees all returns, hence all take the same decision without another collective.
        """
        returns, group_size = self._returns, self.num_generations
        kept = set(self._groups_to_train(returns))
        self._metrics["train"]["filter/skipped"].append(float(not kept))
        if not kept:
            logger.warning("step %d makes no update: all returns are equal in every group", self.state.global_step + 1)
            return {**batch, "skip": torch.tensor(True)}
        local = batch["completion_ids"].shape[0]
        offset = self.accelerator.process_index * local
        advantages = self._advantages(returns)
        self._log_advantages(advantages, kept)
        batch["advantages"] = advantages[offset : offset + local]
        ranks: list[list[int]] = [[] for _ in range(self.accelerator.num_processes)]
        for row in range(returns.numel()):
            if row // group_size in kept:
                ranks[row // local].append(row % local)
        chunk = self.args.steps_per_generation
        size = -(-max(map(len, ranks)) // chunk) * chunk
        rows = ranks[self.accelerator.process_index]
        batch = select_rows(batch, rows, size)
        mask = batch["completion_mask"] * batch["tool_mask"]
        batch["num_items_in_batch"] = self.accelerator.gather(mask.sum()).sum()
        used = len(kept) * group_size
        fill = size * self.accelerator.num_processes / used if self.loss_type in _ROW_MEAN_LOSSES else 1.0
        batch["loss_scale"] = torch.tensor(fill, device=mask.device)
        return batch

    def _log_advantages(self, advantages: torch.Tensor, kept: set[int]) -> None:
        """Put what is trained into TRL's table of completions: 0 for a group that the filter dropped."""
        shown = advantages if advantages.ndim == 1 else advantages.sum(dim=1)
        rows = enumerate(shown.tolist())
        self._logs["advantages"].clear()
        self._logs["advantages"].extend(value if row // self.num_generations in kept else 0.0 for row, value in rows)

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._get_per_token_logps_and_entropies(*args, **kwargs)
        self._scored_logprobs = result[0].detach()
        return result

    def _compute_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        if "skip" in inputs:
            # Nothing to learn: a loss that no parameter depends on leaves every gradient None, and an optimiser
            # passes over parameters without gradient (no momentum step, no weight decay).
            return torch.zeros((), device=self.accelerator.device, requires_grad=True)
        loss = super()._compute_loss(model, inputs)
        if "loss_scale" not in inputs:  # evaluation
            return loss
        self._log_ratio(inputs)
        return loss * inputs["loss_scale"]

    def _log_ratio(self, inputs: dict[str, Any]) -> None:
        """How far π(trained) / π(sampled) is from 1 at most: 0 up to rounding before the first update of a batch."""
        mask = (inputs["completion_mask"] * inputs["tool_mask"]).bool()
        difference = (self._scored_logprobs - inputs["sampling_per_token_logps"])[mask]
        deviation = difference.exp().sub(1).abs().amax() if difference.numel() else difference.new_zeros(())
        largest = self.accelerator.gather(deviation).max().item()
        self._metrics["train"]["sampling/ratio_deviation_max"].append(largest)

    def _log_rollout(self, mode: str) -> None:
        """Means over the trajectories of all processes, filtered or not."""
        rows = [measure(trajectory) for trajectory in self._played]
        values = torch.tensor([list(row.values()) for row in rows], device=self.accelerator.device)
        means = self.accelerator.gather(values).mean(dim=0).tolist()
        for name, mean in zip(rows[0], means, strict=True):
            self._metrics[mode][name].append(mean)
