"""Small trainers for the trainer tests: a real ``StarPOTrainer`` on the tiny model, a few steps long.

And what such a trainer works on, made up: trajectories of given lengths and rewards, and rollout batches of them.
"""

from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedModel
from trl import GRPOConfig, GRPOTrainer

from ragen_envs import AgentTurns, TextEnv
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.batching.batch import sampled_mask, segment_rows, trajectory_batch
from ragen_trl.batching.rollout_batch import RolloutBatch, TrajectorySummary
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.training.observers import RolloutEvent
from ragen_trl.trajectory import Trajectory, Turn

TOKENIZER = build_tiny_tokenizer()


LAKE = "ragen/FrozenLake-v0"

SMALL: dict[str, Any] = {
    "think": False,
    "max_turns": 2,
    "max_reply_length": 6,
    "max_completion_length": 120,
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_generations": 4,
    "max_steps": 2,
    "logging_steps": 1,
    "record_rollouts": 0,
    "save_strategy": "no",
    "report_to": "none",
    "gradient_checkpointing": False,
    "bf16": False,
    "use_cpu": True,
    "disable_tqdm": True,
    "beta": 0.0,
    "dataloader_pin_memory": False,
}


def on_cpu(**options: Any) -> StarPOConfig:
    """A configuration that needs no accelerator and reports to nobody."""
    return StarPOConfig(**{"output_dir": "unused", "bf16": False, "use_cpu": True, "report_to": "none", **options})


def small_model(seed: int = 0) -> PreTrainedModel:
    """Two layers of width 32: enough to have every kind of parameter."""
    return build_tiny_model(TOKENIZER, seed, hidden_size=32, num_layers=2)


def with_adapter(std: float = 0.1, **settings: Any) -> PeftModel:
    """The small model with an adapter that is not the identity; the same one each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        lora = LoraConfig(**{"r": 4, "lora_alpha": 8, "target_modules": "all-linear", **settings})
        model = get_peft_model(small_model(), lora)
        for name, value in model.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(value, std=std)
    return model


_ARGUMENTS = (
    *("reward_funcs", "callbacks", "peft_config", "train_dataset", "eval_dataset", "optimizers"),
    *("reward_processing_classes", "quantization_config"),
)


def small_trainer(
    folder: Path,
    env: Any = LAKE,
    config: type[StarPOConfig] = StarPOConfig,
    trainer: Any = StarPOTrainer,
    model: Any = None,
    **changes: Any,
) -> StarPOTrainer:
    """A trainer of the small model; ``changes`` are options, or arguments of the trainer."""
    arguments = {name: changes.pop(name) for name in _ARGUMENTS if name in changes}
    args = config(output_dir=str(folder), **{**SMALL, **limits_of(env), **changes})
    return trainer(model or small_model(), env, args, processing_class=TOKENIZER, **arguments)


def limits_of(env: Any) -> dict[str, Any]:
    """The options that say what an environment is played with that comes as an ``AgentTurns``."""
    maker = env[0] if isinstance(env, list) else env
    made = maker() if callable(maker) else None
    named = ("max_turns", "max_actions_per_turn", "max_actions")
    return {name: getattr(made, name) for name in named} if isinstance(made, AgentTurns) else {}


def plain_trainer(folder: Path, reward_funcs: Any, prompts: Sequence[str], **changes: Any) -> GRPOTrainer:
    """TRL's own trainer of the small model."""
    ours = {"think", "max_turns", "max_reply_length", "record_rollouts"}
    options = {name: value for name, value in SMALL.items() if name not in ours}
    args = GRPOConfig(output_dir=str(folder), **{**options, **changes})
    rows = Dataset.from_dict({"prompt": list(prompts)})
    return GRPOTrainer(small_model(), reward_funcs, args, train_dataset=rows, processing_class=TOKENIZER)


class Spy(StarPOTrainer):
    """Keeps what was played and in what, what was learnt from with its advantages, and the micro-batches computed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.rollouts: list[list[Trajectory]] = []
        self.envs: list[Any] = []  # of all trajectories, unwrapped
        self.learnt: list[RolloutBatch] = []  # what the advantages were calculated of
        self.credited: list[torch.Tensor] = []
        self.batches: list[dict[str, Any]] = []  # the micro-batches that had a loss, and their updates
        self.updates: list[int] = []
        super().__init__(*args, **kwargs)

    @property
    def played(self) -> list[Trajectory]:
        """All trajectories, in the order of play."""
        return [trajectory for rollout in self.rollouts for trajectory in rollout]

    def groups(self, size: int = 4) -> list[list[Trajectory]]:
        """They by groups."""
        return [self.played[first : first + size] for first in range(0, len(self.played), size)]

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        self.rollouts.append(super().rollout(starts, envs, policy))
        self.envs += [env.unwrapped for env in envs]
        return self.rollouts[-1]

    def advantages(self, rollout: RolloutBatch) -> torch.Tensor:
        self.learnt.append(rollout)
        self.credited.append(super().advantages(rollout))
        return self.credited[-1]

    def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.batches.append(inputs)
        self.updates.append(self.state.global_step)
        return super().policy_loss(model, inputs)


def as_with_deepspeed(compute_loss: Any) -> Any:
    """``compute_loss`` as it runs under DeepSpeed, whose engine itself does not run here."""

    def loss(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.is_deepspeed_enabled = True
        try:
            return compute_loss(self, *args, **kwargs)
        finally:
            self.is_deepspeed_enabled = False

    return loss


def contexts(batch: dict[str, Any]) -> list[tuple[int, ...]]:
    """The unpadded rows of a batch without filler, sorted."""
    keys = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")
    rows = zip(*(batch[key] for key in keys), strict=True)
    return sorted(tuple(torch.cat([p[m.bool()], c[n.bool()]]).tolist()) for p, m, c, n in rows if n.any())


class LastRollout:
    """Keeps the last rollout: the trajectories of this process, of dropped groups too, and its parts."""

    def __init__(self, trainer: StarPOTrainer) -> None:
        divide = trainer.training_batch

        def kept(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
            self.micro_batches = divide(rows)
            return self.micro_batches

        trainer.training_batch = kept  # type: ignore[method-assign]
        self.micro_batches: list[dict[str, Any]] = []
        self.played: list[Trajectory] = []
        trainer.observers.append(self)

    def on_rollout(self, event: RolloutEvent) -> None:
        self.played = list(event.rollout.trajectories)


def logged(trainer: Any, name: str) -> list[float]:
    """A metric of every step that has it."""
    return [row[name] for row in trainer.state.log_history if name in row]


def both_scores(model: Any, trajectory: Trajectory, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """(T,) log-probabilities of the sampled tokens: as the sampler reported them, and of one pass over the whole."""
    ids = torch.tensor([trajectory.token_ids])
    with torch.no_grad():
        logprobs = (model(input_ids=ids).logits[0, :-1].float() / temperature).log_softmax(-1)
    expected = logprobs.gather(1, ids[0, 1:, None])[:, 0][torch.tensor(trajectory.action_mask[1:]).bool()]
    return torch.tensor([value for turn in trajectory.turns for value in turn.logprobs]), expected


def parameters(trainer: StarPOTrainer) -> dict[str, torch.Tensor]:
    """A copy of all parameters."""
    return {name: value.detach().clone() for name, value in trainer.model.named_parameters()}


def double(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


class Lottery(TextEnv):
    """Each draw pays ``win`` or nothing, by the outcome seed alone; every reply is a valid action.

    With several draws an episode may end before any but the first, so that lengths differ.
    """

    def __init__(self, win: float = 1.0, draws: int = 1) -> None:
        super().__init__()
        self.win = win
        self.draws = draws
        self.drawn = 0

    @property
    def instruction(self) -> str:
        """Nothing to understand."""
        return "Say something."

    def _start(self, options: Any) -> str:
        self.drawn = 0
        return f"Ticket {self.np_random.integers(1_000_000)}"

    def _parse_action(self, text: str) -> str:
        return text

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        won = bool(self.outcome_random.random() < 0.5)
        self.drawn += 1
        over = self.drawn == self.draws or bool(self.outcome_random.random() < 0.3)
        return "drawn", self.win * won, over, {"success": won, "action_is_effective": True}

    def best_action(self, actions_left: int) -> str:
        """Nothing is better than this."""
        return "seven"


class AnyReply(AgentTurns):
    """Takes whatever the model says as one action, so that an untrained model plays without penalties."""

    def step(self, action: str) -> Any:
        """Read every reply as an answer."""
        return super().step(self.format_reply(["ticket"]))


def any_reply(env: TextEnv, turns: int, **options: Any) -> AnyReply:
    """Without thoughts, a draw a turn."""
    return AnyReply(env, think=False, max_turns=turns, max_actions=99, max_actions_per_turn=1, **options)


def lottery(win: float = 1.0, draws: int = 1, max_turns: int | None = None) -> Any:
    """A maker of lotteries; with fewer turns than draws, the limit of turns cuts episodes off."""
    return lambda: any_reply(Lottery(win, draws), max_turns or draws)


def made_up(*turns: tuple[int, int, float], states: Sequence[str] = (), **fields: Any) -> Trajectory:
    """A trajectory of turns (environment tokens, sampled tokens, reward).

    Tokens are numbered 1, 2, … and the log-probability of token i is -i / 100. States are those given, or all equal.
    """
    numbers = count(1)

    def turn(place: int, shown: int, sampled: int, reward: float) -> Turn:
        prompt = tuple(next(numbers) for _ in range(shown))
        reply = tuple(next(numbers) for _ in range(sampled))
        state = states[place] if states else ""
        return Turn(prompt, reply, tuple(-i / 100 for i in reply), "?", "!", reward, state=state)

    made = tuple(turn(place, *described) for place, described in enumerate(turns))
    return Trajectory(made, **{"seed": 0, "terminated": True, **fields})


def rollout_of(
    trajectories: Sequence[Trajectory],
    group_size: int,
    processes: int = 1,
    process: int = 0,
    extra: Sequence[Sequence[float]] = (),
    weights: Sequence[float] | None = None,
    envs: Sequence[str] | None = None,
) -> RolloutBatch:
    """What one of several processes holds after a rollout of these trajectories, in equal and contiguous shares.

    ``extra`` are the rewards of further functions, one list each; ``envs`` names the environment of every trajectory.
    """
    names = list(envs or ["env"] * len(trajectories))
    tasks = [list(dict.fromkeys(names)).index(name) for name in names]
    columns = [[trajectory.episode_return for trajectory in trajectories], *extra]
    share = len(trajectories) // processes
    here = list(trajectories[process * share : (process + 1) * share])
    return RolloutBatch(
        trajectories=here,
        rank=process,
        ranks=tuple(row // share for row in range(len(trajectories))),
        rewards=torch.tensor(columns).T,
        weights=torch.tensor(weights or [1.0] * len(columns)),
        summaries=[TrajectorySummary.of(*of) for of in zip(trajectories, names, tasks, strict=True)],
        group_size=group_size,
        pad_id=0,
    )


def generation_batch(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    """The rows of trajectories, with advantages of 0."""
    mask = sampled_mask(trajectory_batch(trajectories, 0))
    return segment_rows(trajectories, torch.zeros(len(trajectories)), mask, 0)
