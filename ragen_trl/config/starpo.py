r"""The training configurations: TRL's ``GRPOConfig`` with the options that multi-turn training adds.

Everything else is TRL's and has TRL's meaning, with a *trajectory* for TRL's *completion*. TRL options that this
package does not honour are refused, never ignored.
"""

import math
import warnings
from dataclasses import dataclass
from typing import ClassVar

import torch
from transformers.utils import is_torch_bf16_gpu_available
from trl import GRPOConfig

from ragen_trl.config.checks import check_combinations, check_options_of_trl, context_name
from ragen_trl.config.options import (
    CRITIC_ADVANTAGES,
    AStarPOOptions,
    CriticOptions,
    PlayOptions,
    TrainingOptions,
    check_options,
    option,
)
from ragen_trl.errors import OptionError

# Transformers is about to rename it, and TRL sets and calls it by the old name in every run, whatever a user does.
warnings.filterwarnings("ignore", r"`(is_)?gradient_checkpointing.* is deprecated", FutureWarning, r"transformers\.")

_ROLLOUTS, _MICRO_BATCHES = 200, 32  # RAGEN's: 200 rollouts of 128 trajectories, here in micro-batches of 4


@dataclass
class StarPOConfig(TrainingOptions, PlayOptions, CriticOptions, GRPOConfig):
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

    _trainer: ClassVar[str | None] = None  # the only trainer that reads these options; None: any of this package

    def __post_init__(self) -> None:
        check_options(self)
        check_options_of_trl(self)
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
        # One where a critic or V* gives the baseline instead of the group.
        least = 1 if self.advantage in CRITIC_ADVANTAGES or self._trainer == "AStarPOTrainer" else 2
        if self.num_generations is not None and self.num_generations < least:
            raise OptionError(f"num_generations is {self.num_generations}; a group needs at least {least}")
        try:
            super().__post_init__()
        except ValueError as error:
            # TRL's last word on sizes refuses groups of one, which a critic and A*-PO do not need to compare.
            if self.num_generations != 1 or "at least 2 generations" not in str(error):
                raise
        if has_default_length:
            self.max_steps = math.ceil(_ROLLOUTS * self.steps_per_rollout)
        self.shuffle_dataset = False  # rows are in order; TRL would mix passes, and order a longer run in another way
        check_combinations(self)

    def _set_updates(self) -> None:
        """How many updates a rollout has, where it is not given; TRL reads epochs if ``max_steps`` is -1."""
        if self.gradient_accumulation_steps is None:
            self.gradient_accumulation_steps = _MICRO_BATCHES
            in_parts = self.advantage in CRITIC_ADVANTAGES and self.filter_ratio == 1
            if in_parts and self.steps_per_generation is None and self.generation_batch_size is None:
                self.steps_per_generation = _MICRO_BATCHES
                self.gradient_accumulation_steps = _MICRO_BATCHES // 4
        if self.max_steps is None:
            self.max_steps = -1
        if self.num_train_epochs is None:
            self.num_train_epochs = GRPOConfig.num_train_epochs

    @property
    def groups_per_generation(self) -> int:
        """Start states per rollout batch (RAGEN's P): generation_batch_size / num_generations."""
        assert self.generation_batch_size is not None and self.num_generations is not None
        return int(self.generation_batch_size) // self.num_generations

    @property
    def groups_per_update(self) -> int:
        """Groups that ``filter_ratio`` leaves of a rollout, at least one; not read with ``top_p``."""
        return max(1, int(self.filter_ratio * self.groups_per_generation + 1e-9))

    @property
    def steps_per_rollout(self) -> int:
        """Optimiser steps on one rollout batch."""
        assert self.steps_per_generation is not None
        return max(1, self.steps_per_generation * self.num_iterations // self.gradient_accumulation_steps)

    @property
    def num_rollouts(self) -> int:
        """Rollout batches in ``max_steps`` optimizer steps."""
        return math.ceil(self.max_steps / self.steps_per_rollout)


@dataclass
class StarPOSConfig(StarPOConfig):
    """StarPO-S, the stabilised form: train on the most uncertain quarter of the groups, no KL, clip 0.2/0.28.

    Each ingredient is an ordinary field: ``filter_ratio``, ``beta``, ``epsilon`` and ``epsilon_high``.
    """

    filter_ratio: float = option(0.25, "Share to train on, of the groups ('top_k') or of the spread.", "(0, 1]")
    beta: float = option(0.0, "KL coefficient (TRL's k3 term in the loss); 0 loads no reference model.", "[0, inf)")
    epsilon_high: float | None = option(0.28, "Upper clip range (clip-higher).", "[0, inf)")


@dataclass
class AStarPOConfig(AStarPOOptions, StarPOConfig):
    r"""A\*-PO (arXiv 2505.20686) over multi-turn trajectories: V* from a reference policy, then least squares.

    Defaults that differ from ``StarPOConfig``: one trajectory per start state, 256 start states (each needs a V*), no
    entropy bonus, no KL term of TRL's (the regression has its own), learning rate 1e-6 as in the paper, no importance
    ratios: a regression to the exact V* has its optimum at the same policy, no matter where the samples come from.

    Raises:
        OptionError: If a value is out of its range; the message carries the value.
    """

    _trainer = "AStarPOTrainer"

    num_generations: int | None = option(1, "Trajectories per start state and update.", "[1, inf)")
    num_train_seeds: int | None = option(256, "Start states to train on, each with a V*; unset: new ones.", "[1, inf)")
    beta: float = option(0.0, "TRL's KL term; must stay 0, use beta2 or kl_coef.", "[0, inf)")
    entropy_coef: float = option(0.0, "Weight of the mean entropy over sampled tokens (nats).", "[0, inf)")
    vllm_importance_sampling_correction: bool = option(False, "Must stay off: a regression takes no importance ratios.")

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = {"advantage": "group", "beta": 0.0, "log_kl": False, "vllm_importance_sampling_correction": False}
        for name, only in fixed.items():
            if getattr(self, name) != only:
                raise OptionError(
                    f"{name} is {getattr(self, name)!r}; A*-PO regresses on V* and has a KL of its own (beta2, "
                    f"kl_coef): leave {only!r}"
                )
        if self.max_reference_samples < self.reference_samples:
            most, least = self.max_reference_samples, self.reference_samples
            raise OptionError(f"max_reference_samples is {most}, below reference_samples {least}; raise it")
        if self.steps_per_rollout > 1 or self.num_iterations > 1:
            raise OptionError(
                f"one rollout serves {self.steps_per_rollout:g} updates in {self.num_iterations} passes; with an "
                "estimated V* only the first is unbiased: set num_iterations to 1 and leave steps_per_generation unset"
            )
        if self.max_refills and self.num_train_seeds is None:
            raise OptionError(f"max_refills is {self.max_refills}, but new states have no V*; set num_train_seeds")
