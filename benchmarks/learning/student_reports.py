r"""What two student reports trained as "A\*-PO", rebuilt to be compared with A\*-PO. Do not use it for anything else.

Both reports logged negative losses (about -0.49 and -421), which a squared residual cannot have, and reached 0 % and
10 % success. The algorithm is kept: form and normalisation of the loss, coefficients, batch sizes, learning rates.
Left out are the faults of their text handling (they trained on joined actions without the observations, tokenised the
text a second time, cut it, and scored a token by the logits of the next one) and of their evaluation (a shaped reward
above 0.5 counted as success, 10 prompts): tokens, masks and evaluation are those of `ragen_trl`. The first report also
took V* from episodes of half the length and kept it per prompt; here it is sampled again for every update, with the
limits of training.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from accelerate.utils import gather_object
from transformers import PreTrainedModel

from learning.student_losses import imitation_loss, imitation_weights, scaled_likelihood_loss, sum_of_scores
from ragen_trl.algorithms.soft_values import soft_value
from ragen_trl.batching.returns import raw_returns
from ragen_trl.batching.rewards import consistency_reward
from ragen_trl.batching.rollout_batch import RolloutBatch
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.rollout.interfaces import Start
from ragen_trl.trainers.reference import Reference
from ragen_trl.trainers.starpo import StarPOTrainer
from ragen_trl.trainers.trajectory import TrajectoryTrainer

_VALUE_PLAY = 11  # keeps the sampling seeds of V* apart from those of training

# Options of StarPO that neither loss has.
_NOT_IN_THE_LOSS = (
    *("advantage", "baseline", "scale_rewards", "multi_objective_aggregation", "loss_type"),
    *("beta", "delta", "epsilon", "epsilon_high"),
)


class MissingReasoningRewardError(UserError, ValueError):
    """The second report rewards reasoning, and these replies hold none."""


@dataclass
class FirstReportConfig(StarPOConfig):
    """The first report's settings: one trajectory an update, learning rate 3e-7, 100 updates.

    Not an ``AStarPOConfig``: there is no reference stage, and nothing of the regression.

    Raises:
        ValueError: As ``StarPOConfig``; and for options that this loss does not have.
    """

    _min_group_size = 1
    _trainer = "FirstReportTrainer"

    learning_rate: float = field(default=3e-7, metadata={"help": "Learning rate."})
    max_steps: int = field(default=100, metadata={"help": "Updates."})
    per_device_train_batch_size: int = field(default=1, metadata={"help": "Trajectories per forward pass and process."})
    gradient_accumulation_steps: int = field(default=1, metadata={"help": "Micro-batches per update."})
    num_generations: int | None = field(default=1, metadata={"help": "Trajectories per start state and update."})
    beta: float = field(default=0.0, metadata={"help": "TRL's KL term; stays 0, see kl_coef."})
    entropy_coef: float = field(default=0.0, metadata={"help": "Entropy bonus; the report has none."})
    format_penalty: float = field(default=0.0, metadata={"help": "Reward of an unreadable turn; the report has none."})
    kl_coef: float = field(default=0.03, metadata={"help": "Weight of k1 to the reference, per token."})
    weight_temperature: float = field(default=0.3, metadata={"help": "β of weights and V*, in units of the return."})
    value_samples: int = field(default=1, metadata={"help": "Episodes of the present policy for each V*."})
    initial_value: float = field(default=0.3, metadata={"help": "V* of all start states in the first updates."})
    initial_value_steps: int = field(default=20, metadata={"help": "For how many updates that is V*."})

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse(self, (*_NOT_IN_THE_LOSS, "filter_ratio", "filter_strategy", "max_refills"))
        if self.value_samples < 1 or self.weight_temperature <= 0:
            given = f"value_samples is {self.value_samples} and weight_temperature {self.weight_temperature}"
            raise ValueError(f"{given}; V* needs at least one episode and a temperature above 0")
        if self.steps_per_rollout > 1:
            raise ValueError(
                f"one rollout serves {self.steps_per_rollout:g} updates, but its weights are normalised for one: set "
                "num_iterations to 1 and leave steps_per_generation unset"
            )


@dataclass
class SecondReportConfig(StarPOConfig):
    """The second report's settings: 2 groups of 4 an update, learning rate 3e-5, 300 updates, T = 6.

    Raises:
        ValueError: As ``StarPOConfig``; and for options that this loss does not have.
    """

    _trainer = "SecondReportTrainer"

    learning_rate: float = field(default=3e-5, metadata={"help": "Learning rate."})
    max_steps: int = field(default=300, metadata={"help": "Updates."})
    gradient_accumulation_steps: int = field(default=2, metadata={"help": "Micro-batches per update."})
    num_generations: int | None = field(default=4, metadata={"help": "Trajectories per start state: the group size."})
    beta: float = field(default=0.0, metadata={"help": "TRL's KL term; stays 0, see kl_coef."})
    entropy_coef: float = field(default=0.0, metadata={"help": "Entropy bonus; the report has none."})
    format_penalty: float = field(default=0.0, metadata={"help": "Reward of an unreadable turn; the report has none."})
    reward_weights: list[float] | None = field(
        default_factory=lambda: [1.0, 0.4], metadata={"help": "Weights of z(return) and z(reasoning)."}
    )
    kl_coef: float = field(default=0.05, metadata={"help": "Weight of k1 to the reference, per token."})
    advantage_scale: float = field(default=6.0, metadata={"help": "What the report calls temperature: T."})

    def __post_init__(self) -> None:
        super().__post_init__()
        _refuse(self, _NOT_IN_THE_LOSS)


class _AnchoredTrainer(TrajectoryTrainer):
    """A trainer that also scores its trajectories under the policy with which it began.

    Attributes:
        reference: That policy.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reference = Reference(self.accelerator.unwrap_model(self.model))

    def _log_probabilities(
        self, model: PreTrainedModel, inputs: dict[str, Any]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """(B, T) under the policy, (B, T) under the reference, (B, T) mask of the sampled tokens."""
        mask = inputs["completion_mask"] * inputs["tool_mask"]
        with self.reference.model() as frozen:
            ref_logprobs, _ = self.score(frozen, inputs)
        logprobs, _ = self.score(model, inputs)
        kl = ((logprobs.detach() - ref_logprobs) * mask).sum()
        total, tokens = self._total(torch.stack([kl.double(), mask.sum().double()])).tolist()
        self.record("train", {"kl": total / max(1.0, tokens)})
        return logprobs, ref_logprobs, mask


class FirstReportTrainer(_AnchoredTrainer):
    r"""The first report's "A\*-PO": imitation of the model's own samples, weighted by :math:`e^{(R - V^*) / \beta}`.

    Why it fails: with one trajectory per update a weight divided by its mean is 1, so that the reward has no effect at
    all; it imitates 100 of its own samples at 3e-7 and stays at 0 %. Larger batches do weigh, but no weight is
    negative: failures are imitated, too.

    Arguments and errors are those of `TrajectoryTrainer`; ``args`` is a ``FirstReportConfig``.
    """

    _tag_names = ["trl", "ragen"]
    _name = "the first student report"
    _paper: dict[str, str] = {}

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        """(B,) the weights of all trajectories of this rollout."""
        values = rollout.returns.new_tensor(self._soft_values(rollout))
        return imitation_weights(rollout.returns - values, self.args.weight_temperature)

    def policy_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """Weighted cross-entropy and k1."""
        scored = self._log_probabilities(model, inputs)
        return imitation_loss(*scored, inputs["advantages"], self.args.kl_coef, inputs["step_trajectories"])

    def _soft_values(self, rollout: RolloutBatch) -> list[float]:
        """V* of each trajectory's start: at first a constant, later of the present policy, not of the reference."""
        args, step = self.args, self.state.global_step
        if step < args.initial_value_steps:
            return [args.initial_value] * len(rollout.summaries)
        plays = [(row, index) for row in rollout.local_indices for index in range(args.value_samples)]
        summaries = [rollout.summaries[row] for row, _ in plays]
        starts = [
            Start.drawn(summary.seed, [args.seed, step, self.micro_step, *play, _VALUE_PLAY])
            for summary, play in zip(summaries, plays, strict=True)
        ]
        envs = self._envs.take([self._tasks.specs[summary.task] for summary in summaries])
        with self.unwrapped_model() as model:
            played = self.rollout(starts, envs, self.policy(self.temperature, model))
        columns = self._tasks.columns((summary.task, summary.seed) for summary in summaries)
        decode = partial(self.tokenizer.decode, skip_special_tokens=True)
        returns = raw_returns(played, self.reward_funcs, self.reward_weights.tolist(), decode, columns)
        samples = torch.tensor(returns).reshape(-1, args.value_samples)
        # Every process has all of its rows, in order: so have all of them together.
        values: list[float] = gather_object(soft_value(samples, args.weight_temperature).tolist())
        return values


class SecondReportTrainer(_AnchoredTrainer, StarPOTrainer):
    r"""The second report's "A\*-PO": :math:`-6 A \log \pi` with A = z(return) + 0.4 z(reasoning), and 0.05 k1.

    Why it fails: half of the z-scores are negative, and nothing bounds the loss as their samples become unlikely (it
    logged -421, and still 1 of 10 prompts succeeded). Where all of a group fail, the update is the reasoning bonus
    alone, whose differences of 0.01 normalisation blows up to ±1.22.

    A policy hardly samples what it has made unlikely, so that on fresh samples the loss stays small. It falls on and
    on with several updates a rollout (``num_iterations``), of which the report says nothing: the default is 1.

    Arguments and errors are those of `StarPOTrainer`; ``args`` is a ``SecondReportConfig``. ``reward_funcs`` holds the
    reward of reasoning; unset, it is ``consistency_reward``.

    Raises:
        MissingReasoningRewardError: If ``reward_funcs`` is unset and replies hold no thoughts (``think=False``).
    """

    _tag_names = ["trl", "ragen"]
    _name = "the second student report"
    _paper: dict[str, str] = {}

    def __init__(
        self,
        model: str | PreTrainedModel,
        env: Any = None,
        args: SecondReportConfig | None = None,
        processing_class: Any = None,
        reward_funcs: list[Callable[..., list[float]]] | None = None,
        **kwargs: Any,
    ) -> None:
        if reward_funcs is None and args is not None and not args.think:
            raise MissingReasoningRewardError(
                "think is False, so consistency_reward finds no thought to rate; pass reward_funcs=[...] with a "
                "function that stands in for the reward of reasoning, or set think=True"
            )
        super().__init__(model, env, args, processing_class, reward_funcs or [consistency_reward], **kwargs)

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        """(B,) sums of z-scores."""
        return sum_of_scores(rollout.rewards, rollout.weights, rollout.group_size)

    def policy_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """The scaled log-likelihood and k1."""
        scored = self._log_probabilities(model, inputs)
        options = (self.args.advantage_scale, self.args.kl_coef, inputs["step_tokens"])
        return scaled_likelihood_loss(*scored, inputs["advantages"], *options)


def _refuse(args: StarPOConfig, names: tuple[str, ...]) -> None:
    """An option that would do nothing has to stay at its default."""
    for name in names:
        default = getattr(type(args), name)
        if getattr(args, name) != default:
            raise ValueError(f"{name} is {getattr(args, name)!r}, which this loss does not have; leave it {default!r}")
