"""Training configurations: only the fields that multi-turn training adds to TRL's ``GRPOConfig``.

Everything else is TRL's and has TRL's meaning, with a *trajectory* for TRL's *completion*. TRL options that this
package does not honour are refused, never ignored.
"""

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from transformers.utils import is_torch_bf16_gpu_available
from trl import GRPOConfig

from ragen_trl.config.context_names import context_name
from ragen_trl.config.critic import CriticOptions
from ragen_trl.config.declared_numbers import check_numbers
from ragen_trl.config.play import PlayOptions, option
from ragen_trl.config.reading import ADVANTAGES, CRITIC_ADVANTAGES
from ragen_trl.config.trl_options import check_best_metric, check_refused
from ragen_trl.config.validation import check_combinations, check_values
from ragen_trl.errors import OptionError

# Transformers is about to rename it, and TRL sets and calls it by the old name in every run, whatever a user does.
warnings.filterwarnings("ignore", r"`(is_)?gradient_checkpointing.* is deprecated", FutureWarning, r"transformers\.")

_SAVE_STEPS = 500  # TRL's
_ROLLOUTS, _MICRO_BATCHES = 200, 32  # RAGEN's: 200 rollouts of 128 trajectories, here in micro-batches of 4


@dataclass
class StarPOConfig(PlayOptions, CriticOptions, GRPOConfig):
    """StarPO: policy optimisation over whole state-thinking-action-reward trajectories (RAGEN, arXiv 2504.20073).

    Defaults of TRL's own fields that differ are the paper's: 200 updates at a constant learning rate, each on 8 groups
    of 16 trajectories (on one process: micro-batches of 4, 32 of them), ``loss_type="grpo"`` (mean over trajectories of
    the mean over their sampled tokens), KL coefficient 0.001, entropy coefficient 0.001, dual clip at 3, trajectories
    of at most 3600 tokens. With ``advantage="gae"``, ``"turn_gae"`` or ``"bi_level_gae"`` a critic is trained together
    with the policy (the PPO form), without a filter in four updates on a rollout. With ``use_vllm`` every token's
    importance ratio is cut off at 3 (``vllm_importance_sampling_mode="token_truncate"``), and no trajectory is dropped.
    ``bf16`` is on where the hardware has it and off elsewhere.

    Raises:
        OptionError: If a value is out of its range or of another kind; the message carries the value.
    """

    _VALID_DICT_FIELDS = [*GRPOConfig._VALID_DICT_FIELDS, "env_kwargs"]
    _min_group_size = 2
    _trainer: ClassVar[str | None] = None  # the only trainer that reads these options; None: any of this package

    loss_type: str = option(
        "grpo", "TRL's loss_type. 'grpo' is StarPO's objective: mean over trajectories of the token mean."
    )
    bf16: bool | None = option(None, "Mixed precision in bfloat16; unset: on where the hardware has it.")
    dataloader_pin_memory: bool | None = option(  # type: ignore[assignment]
        None, "As in transformers; unset: where there is a GPU."
    )
    per_device_train_batch_size: int = option(4, "Trajectories per forward and backward pass and process.")
    gradient_accumulation_steps: int = option(
        None,
        "Micro-batches per update; a rollout has as many, unless steps_per_generation is set. Unset: 32. With a critic "
        "and without a filter 8, and rollouts of 32: four updates on each, as in RAGEN.",
    )
    steps_per_generation: int | None = option(
        None, "Micro-batches of a rollout; unset: those of one update, or of four, see gradient_accumulation_steps."
    )
    max_steps: int = option(
        None,
        "Updates; unset, and without num_train_epochs: as many as 200 rollouts have. By default each has its own "
        "rollout, with a critic every four.",
    )
    num_train_epochs: float = option(
        None, "Passes over num_train_seeds start states or a train_dataset, instead of max_steps."
    )
    lr_scheduler_type: str = option("constant", "Learning-rate schedule.")
    num_generations_eval: int | None = option(1, "Trajectories per start state in TRL's evaluation during training.")
    num_generations: int | None = option(
        16, "Trajectories per start state (group size), at least 2; with a critic 1 is enough."
    )
    beta: float = option(0.001, "KL coefficient (TRL's k3 term in the loss); 0 loads no reference model.")
    log_kl: bool = option(
        False,
        "With beta 0: log the KL (k3) to the policy as it was when the trainer was made; one more forward pass over "
        "what an update learns from, and without LoRA a copy of the weights.",
    )
    entropy_coef: float = option(0.001, "Entropy bonus: this times the mean entropy over sampled tokens (nats).")
    delta: float | None = option(3.0, "Dual clip: bound of the ratio where the advantage is negative; unset: none.")
    vllm_importance_sampling_mode: str = option(
        "token_truncate",
        "TRL's correction for what vLLM computes differently. TRL's own default, 'sequence_mask', drops "
        "whole trajectories, nearly all of them if they are long.",
    )
    disable_dropout: bool = option(
        True, "Always on: dropout, LoRA's included, would score replies in another network than sampled them."
    )
    sampler_check: Literal["stop", "warn"] = option(
        "stop",
        "What to do if the trainer's log-probabilities of the first rollout are not the sampler's, 'stop' or 'warn'; "
        "a rollout hook that plays another policy on purpose needs 'warn'.",
    )
    one_step_off_policy: bool = option(
        False,
        "Play the next rollout while the present one is trained on: from the second rollout on, replies are those of "
        "the policy one rollout ago, corrected by importance ratios (vllm_importance_sampling_mode).",
    )
    merge_lora: bool = option(
        False,
        "With LoRA: sample with its product merged into the weights, as vLLM does: one operation a layer instead of "
        "nine. Replies are then scored with other rounding than they were sampled with.",
    )
    vllm_adapter_dir: str | None = option(
        None,
        "With LoRA and vllm_mode 'server': leave the adapter in this folder, of this run alone, which the server sees "
        "under the same path, and send nothing else; unset: send merged weights over NCCL.",
    )
    num_train_seeds: int | None = option(
        None, "Different start states to train on; unset: a new one for every group of the run."
    )
    num_eval_seeds: int = option(64, "Start states of TRL's evaluation during training (eval_strategy).")
    train_seed_start: int = option(10_000, "Seed of the first training start state; evaluation uses those below.")
    curriculum_rollouts: int = option(
        0, "Rollouts in which start states go from the easiest to all (ragen_envs.difficulty); 0: no curriculum."
    )
    advantage: str = option("group", f"Advantage estimator: one of {', '.join(ADVANTAGES)}.")
    baseline: Literal["mean", "leave_one_out"] = option(
        "mean",
        "Baseline of the group advantage: 'mean' of the group or 'leave_one_out'. scale_rewards (TRL) "
        "sets the divisor: 'group' std, 'batch' std or 'none'.",
    )
    gamma: float = option(1.0, "Discount per sampled token ('gae', 'bi_level_gae').")
    gae_lambda: float = option(1.0, "λ of generalised advantage estimation over tokens.")
    turn_gamma: float = option(0.95, "Discount per turn ('turn_gae', 'bi_level_gae', 'gigpo').")
    turn_lambda: float = option(1.0, "λ of generalised advantage estimation over turns ('turn_gae').")
    step_weight: float = option(1.0, "Weight of the turn's part ('gigpo'), or of the last turn's reward ('mt_grpo').")
    filter_ratio: float = option(
        1.0, "Share to train on, of the groups ('top_k') or of the spread (the others); 1 keeps all."
    )
    filter_strategy: str = option(
        "top_k",
        "'top_k': that share of the groups, those with the largest std of raw returns (StarPO-S); "
        "'top_p': the fewest groups that hold that share of the sum of the stds (RAGEN-2's code); "
        "'top_p_variance': of the sum of the variances (its paper).",
    )
    max_refills: int = option(0, "Most extra rollouts, from new start states, to complete the groups to train on.")
    env_weights: list[float] | None = option(
        None, "With several environments: how often each is played; unset: equally."
    )

    def __post_init__(self) -> None:
        check_refused(self)
        check_numbers(self)
        if callable(self.context):  # its name goes to other processes and into saved files
            self.context = context_name(self.context)
        has_default_length = self.max_steps is None and self.num_train_epochs is None
        self._set_updates()
        if self.bf16 is None:
            self.bf16 = not self.fp16 and not self.use_cpu and is_torch_bf16_gpu_available()
        if self.bf16 and not torch.accelerator.is_available():
            self.use_cpu: bool = True  # Transformers refuses bf16 without a GPU unless the CPU is asked for
        if self.dataloader_pin_memory is None:
            self.dataloader_pin_memory = torch.cuda.is_available() and not self.use_cpu
        if self.num_generations is not None and self.num_generations < self.min_group_size:
            raise OptionError(
                f"num_generations is {self.num_generations}; a group needs at least {self.min_group_size} trajectories"
            )
        both_given = self.generation_batch_size is not None and self.steps_per_generation is not None
        try:
            super().__post_init__()
        except ValueError as error:
            if both_given or not self._groups_are_at_fault():
                raise
            if self.num_generations != 1:
                raise OptionError(
                    f"{self.generation_batch_size} trajectories a rollout (per_device_train_batch_size · processes · "
                    f"steps_per_generation) are not divisible by num_generations {self.num_generations}; change one "
                    "of them"
                ) from error
            # TRL refuses groups of one, which our trainers take, and leaves out what follows: a former name, and checks
            # of the sampler's ratio, which `check_combinations` makes as well.
            if self.vllm_importance_sampling_cap is not None:
                self.vllm_importance_sampling_clip_max = self.vllm_importance_sampling_cap
        if has_default_length:
            self.max_steps = math.ceil(_ROLLOUTS * self.steps_per_rollout)
        check_values(self)
        self._set_save_steps(max(1, self.steps_per_rollout))
        if self.num_train_seeds is not None or self.curriculum_rollouts:
            self.shuffle_dataset = False  # the rows are in order already; TRL would mix the passes over them
        check_combinations(self)
        check_best_metric(self)

    def _set_updates(self) -> None:
        """How many updates a rollout has, where it is not given; TRL reads epochs if ``max_steps`` is -1."""
        if self.gradient_accumulation_steps is None:
            per_rollout = 1
            in_parts = self.advantage in CRITIC_ADVANTAGES and self.filter_ratio == 1
            if in_parts and self.steps_per_generation is None and self.generation_batch_size is None:
                per_rollout = 4
                self.steps_per_generation: int | None = _MICRO_BATCHES
            self.gradient_accumulation_steps = _MICRO_BATCHES // per_rollout
        if self.max_steps is None:
            self.max_steps = -1
        if self.num_train_epochs is None:
            self.num_train_epochs = GRPOConfig.num_train_epochs

    def _set_save_steps(self, updates: float) -> None:
        """Where TRL's number was not changed, take the next one at the end of a rollout of so many updates."""
        asked = float(vars(self)["save_steps"])  # mypy does not know the field's type
        if asked == _SAVE_STEPS:
            self.save_steps = int(math.ceil(asked / updates) * updates)

    def _groups_are_at_fault(self) -> bool:
        """Whether TRL's checks, which stop at the first fault, stopped at the size of the groups.

        They set both batch sizes, then compare the evaluation's batch with its groups, then the rollout's batch.
        """
        if self.generation_batch_size is None or self.steps_per_generation is None or self.num_generations is None:
            return False
        if self.do_eval and self.eval_strategy != "no":
            group = self.num_generations_eval or self.num_generations
            if self.per_device_eval_batch_size * self.world_size % group:
                return False
        return self.num_generations == 1 or self.generation_batch_size % self.num_generations != 0

    @property
    def min_group_size(self) -> int:
        """Fewest trajectories per start state: one where a critic gives the baseline instead of the group."""
        return 1 if self.advantage in CRITIC_ADVANTAGES else self._min_group_size

    @property
    def groups_per_generation(self) -> int:
        """Start states per rollout batch (RAGEN's P): generation_batch_size / num_generations."""
        assert self.generation_batch_size is not None and self.num_generations is not None
        return self.generation_batch_size // self.num_generations

    @property
    def groups_per_update(self) -> int:
        """Groups that ``filter_ratio`` leaves of a rollout, at least one; not read with ``top_p``."""
        return max(1, int(self.filter_ratio * self.groups_per_generation + 1e-9))

    @property
    def steps_per_rollout(self) -> float:
        """Optimiser steps on one rollout batch; below 1 if a step takes several rollout batches."""
        assert self.steps_per_generation is not None
        return self.steps_per_generation * self.num_iterations / self.gradient_accumulation_steps

    @property
    def num_rollouts(self) -> int:
        """Rollout batches in ``max_steps`` optimizer steps."""
        return math.ceil(self.max_steps / self.steps_per_rollout)


@dataclass
class StarPOSConfig(StarPOConfig):
    """StarPO-S, the stabilised form: train on the most uncertain quarter of the groups, no KL, clip 0.2/0.28.

    Each ingredient is an ordinary field: ``filter_ratio``, ``beta``, ``epsilon`` and ``epsilon_high``.
    """

    filter_ratio: float = option(
        0.25, "Share to train on, of the groups ('top_k') or of the spread (the others); 1 keeps all."
    )
    beta: float = option(0.0, "KL coefficient (TRL's k3 term in the loss); 0 loads no reference model.")
    epsilon_high: float | None = option(0.28, "Upper clip range (clip-higher).")
