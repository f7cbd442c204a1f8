r"""Configuration of A\*-PO over trajectories: the paper's values where it names them.

β₁, β₂ and the target standard error are in units of the *return range* (largest minus smallest return of the reference
policy), so rewards of another scale make the same run.
"""

from dataclasses import dataclass
from typing import Literal

from ragen_trl.config.play import option
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError

# Options that a regression of whole trajectories does not use: estimators of advantages, a critic, ratios and clips.
# It always has a reference, and logs the KL to it.
_OF_OTHER_LOSSES = (
    *("advantage", "baseline", "scale_rewards", "multi_objective_aggregation"),
    *("loss_type", "epsilon", "epsilon_high", "delta", "importance_sampling_level", "off_policy_mask_threshold"),
    *("log_kl", "use_bias_correction_kl", "sync_ref_model", "top_entropy_quantile", "use_adaptive_entropy"),
    *("vllm_importance_sampling_correction", "vllm_importance_sampling_mode"),
    *("vllm_importance_sampling_clip_max", "vllm_importance_sampling_clip_min"),
)


@dataclass
class AStarPOConfig(StarPOConfig):
    r"""A\*-PO (arXiv 2505.20686) over multi-turn trajectories: V* from a reference policy, then least squares.

    Defaults that differ from ``StarPOConfig``: one trajectory per start state, 256 start states (each needs a V*), no
    entropy bonus, no KL term of TRL's (the regression has its own), learning rate 1e-6 as in the paper, no importance
    ratios: a regression to the exact V* has its optimum at the same policy, no matter where the samples come from.

    Raises:
        OptionError: If a value is out of its range; the message carries the value.
    """

    _min_group_size = 1
    _trainer = "AStarPOTrainer"

    learning_rate: float = option(1e-6, "Learning rate; about 1e-5 with LoRA.")
    num_generations: int | None = option(1, "Trajectories per start state and update.")
    num_train_seeds: int | None = option(
        256, "Different start states to train on, each with a V*; unset: a new one for every trajectory."
    )
    beta: float = option(0.0, "TRL's KL term; must stay 0, use beta2 or kl_coef.")
    entropy_coef: float = option(0.0, "Entropy bonus: this times the mean entropy over sampled tokens (nats).")
    vllm_importance_sampling_correction: bool = option(False, "Must stay off: a regression takes no importance ratios.")
    reference_samples: int = option(8, "Episodes of the reference from each start state (N).")
    max_reference_samples: int = option(32, "Most episodes from a start state whose V* stays uncertain.")
    value_std_error: float = option(0.15, "Standard error of V* that is good enough, in units of the return range.")
    beta1: float = option(0.5, "Temperature of V*, in return ranges; near 0: best return, large: mean return.")
    beta2: float = option(1e-3, "Weight of the log-ratio to the reference, in units of the return range per nat.")
    return_range: float | None = option(
        None, "Largest minus smallest return; unset: measured on the reference's episodes."
    )
    loss_scale: Literal["unit", "paper"] = option(
        "unit", "'unit': the gradient has the scale of REINFORCE; 'paper': times 2·beta2."
    )
    residual_cap: float | None = option(
        None, "Residuals beyond this many return ranges count linearly (Huber); unset: all squared."
    )
    kl_coef: float = option(
        0.0, "Weight of the KL to the reference per token (k3), on the unit scale; 0: no such term."
    )
    refresh_steps: int = option(
        0, "Updates after which the policy becomes the reference and V* is estimated again; 0: never."
    )
    refresh_when_stale: bool = option(
        False, "Do the same when returns lie above V* by more than three standard errors."
    )
    stale_window: int = option(8, "Rollouts over which refresh_when_stale compares them.")
    reward_version: str = option(
        "", "Part of the cache's key; change it when rewards of an environment or a function change."
    )
    value_cache: str | None = option(
        None, "SQLite file of the reference's returns, shared by runs; unset: in the run folder."
    )

    def __post_init__(self) -> None:
        if self.one_step_off_policy:
            raise OptionError(
                "one_step_off_policy is True, but A*-PO has no importance ratio to correct an older rollout by, and "
                "compares what the present policy earns with V*; leave it off"
            )
        if self.observation != "text":
            raise OptionError(
                f"observation is {self.observation!r}, but the reference of A*-PO reads text; use StarPO or StarPO-S"
            )
        super().__post_init__()
        positive = ("value_std_error", "beta1", "beta2", "reference_samples", "stale_window")
        for name in (*positive, "return_range", "residual_cap"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise OptionError(f"{name} is {value}; it must be above 0 and finite")
        for name in ("kl_coef", "refresh_steps"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise OptionError(f"{name} is {getattr(self, name)}; it cannot be negative or infinite")
        self._check_combinations_of_ours()

    def _check_combinations_of_ours(self) -> None:
        for name in _OF_OTHER_LOSSES:
            if getattr(self, name) != getattr(type(self), name):
                raise OptionError(f"{name} is {getattr(self, name)!r}, which A*-PO does not read; leave it unset")
        if self.loss_scale not in ("unit", "paper"):
            raise OptionError(f"loss_scale is {self.loss_scale!r}; choose 'unit' or 'paper'")
        if self.stale_window != type(self).stale_window and not self.refresh_when_stale:
            raise OptionError(
                f"stale_window is {self.stale_window}, which only refresh_when_stale=True reads; set that, too"
            )
        if self.max_reference_samples < self.reference_samples:
            raise OptionError(
                f"max_reference_samples is {self.max_reference_samples}, below reference_samples "
                f"{self.reference_samples}; raise it"
            )
        if self.beta != 0:
            raise OptionError(f"beta is {self.beta}; leave TRL's KL term at 0 and use beta2, or kl_coef")
        if self.steps_per_rollout > 1 or self.num_iterations > 1:
            raise OptionError(
                f"one rollout serves {self.steps_per_rollout:g} updates in {self.num_iterations} passes; with an "
                "estimated V* only the first is unbiased: set num_iterations to 1 and leave steps_per_generation unset"
            )
        if self.num_generations == 1 and (self.filter_ratio < 1 or self.max_refills):
            raise OptionError(
                f"filter_ratio {self.filter_ratio} and max_refills {self.max_refills} need groups to compare; raise "
                "num_generations, or leave both unset: start states without spread are dropped anyway"
            )
        if self.max_refills and self.num_train_seeds is None:
            raise OptionError(
                f"max_refills is {self.max_refills}, but new start states have no V*; set num_train_seeds, from which "
                "extra rollouts are then drawn"
            )
