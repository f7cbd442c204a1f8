"""The games that a pretrained model plays, and all settings of their runs in one table, as data.

Options are those of ``python -m ragen_trl {warm-start,train,eval}``. With another number here, the runs that depend on
it get other folders (``runs.py``); what was made with the old number stays where it is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.names import DEMONSTRATED, OTHER_PAIRS
from ragen_envs import TURN_LIMITS
from ragen_envs.bandit.env import TRAIN_PAIRS
from ragen_trl.config.recipes import ENVIRONMENTS, PRETRAINED_WARM_START

Options = Mapping[str, Any]
EPISODES = 256
"""Held-out start states at both ends of a run, unless a game has more."""


@dataclass(frozen=True)
class Game:
    """What is played, how it is learnt, and how long that takes on two cores.

    Attributes:
        env: Gymnasium id.
        env_kwargs: Its keyword arguments in demonstrations and in training.
        play: Limits and form of play, the same for all stages.
        evaluations: Environment and keyword arguments by name; the first one is the game itself, held out.
        warm_start: Options of ``warm-start``.
        training: Options of ``train`` for all algorithms, over ``TRAINING``; those of ``ALGORITHMS`` go over them.
        algorithms: Options by algorithm, over all others; an algorithm that is not here is not run.
        seeds: Of the training runs.
        seeds_of: Of those of an algorithm that has others.
        played_greedily: Algorithms whose models are also played greedily, in runs of their own.
        episodes: Held-out start states of the evaluations at both ends of a run.
        begins_with: The game whose warm start is trained here too, in place of one of its own; without ``warm_start``.
        trained_in: The game whose models play here; nothing is trained then.
        side_by_side: Episodes of an evaluation that are played at once.
        minutes: Expected: of an evaluation of 256 start states, of the warm start, and of an update.
    """

    env: str
    env_kwargs: Options
    play: Options
    evaluations: Mapping[str, tuple[str, Options]]
    warm_start: Options = field(default_factory=dict)
    training: Options = field(default_factory=dict)
    algorithms: Mapping[str, Options] = field(default_factory=dict)
    seeds: tuple[int, ...] = (0,)
    seeds_of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    played_greedily: tuple[str, ...] = ()
    episodes: int = EPISODES
    begins_with: str = ""
    trained_in: str = ""
    side_by_side: int = 64
    minutes: tuple[float, float, float] = (4, 14, 0.9)

    @property
    def evaluation_minutes(self) -> float:
        """Expected, for all of its start states."""
        return self.minutes[0] * self.episodes / EPISODES


CURVE_EPISODES = 64
"""Held-out start states of an evaluation on the way."""

# 64 trajectories a rollout: 8 start states, 8 trajectories each. Of StarPO-S an update learns from a quarter of them.
TRAINING: dict[str, Any] = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 8,
    "num_generations": 8,
    "gradient_checkpointing": False,  # 1 GB more for 16 trajectories, a quarter of the update saved (shared_prefixes)
    "learning_rate": 3e-4,
    "max_steps": 60,
    "eval_steps": 10,
    "save_steps": 5,
    "lora_r": 32,
    "lora_alpha": 32,
    "entropy_coef": 0.001,
}

# Options of an algorithm in all games.
ALGORITHMS: dict[str, dict[str, Any]] = {
    "starpo_s": {"algo": "starpo-s"},
    "starpo_s_half_as_long": {"algo": "starpo-s"},
    "starpo_s_falling_rate": {"algo": "starpo-s"},
    "starpo_s_constant_rate": {"algo": "starpo-s"},
    "starpo_s_60_updates": {"algo": "starpo-s"},
    "starpo_s_lower_rate": {"algo": "starpo-s", "learning_rate": 1e-4},
    "starpo_s_more_entropy": {"algo": "starpo-s", "learning_rate": 3e-5, "entropy_coef": 0.03, "max_steps": 80},
    "starpo_s_all_weights": {"algo": "starpo-s", "lora_r": 0, "learning_rate": 1e-5},
    "starpo_s_higher_rate": {"algo": "starpo-s", "learning_rate": 1e-3, "filter_ratio": 0.5},
    "starpo_s_final": {"algo": "starpo-s"},
    "starpo_s_success": {"algo": "starpo-s", "learning_rate": 5e-4, "filter_ratio": 0.5},
    "starpo_s_consistency": {"algo": "starpo-s"},
    "gigpo": {"algo": "starpo-s", "advantage": "gigpo"},
    "astar_po": {
        "algo": "a-star-po",
        "gradient_accumulation_steps": 4,
        "num_generations": 1,
        "num_train_seeds": 128,
        "reference_samples": 4,
        "max_reference_samples": 8,
        "beta1": 5.0,
        "beta2": 1e-2,
        "entropy_coef": 0.0,
        "scale_rewards": "group",  # the default: A*-PO reads no other
    },
}
ALGORITHMS["astar_po_half_as_long"] = ALGORITHMS["astar_po"]
ALGORITHMS["astar_po_higher_rate"] = {**ALGORITHMS["astar_po"], "learning_rate": 1e-3}

# Supervised: what a pretrained model gets without options, written out, so that it is part of a run's settings, at a
# rate for 135 million parameters: at 1e-4 it learns the form of an answer and not the lake.
WARM_START: dict[str, Any] = {**PRETRAINED_WARM_START, "demo_learning_rate": 4e-4}

_SHORT: dict[str, Any] = {"think": False, "max_reply_length": 24, "max_completion_length": 1024}
_THOUGHTS: dict[str, Any] = {"think": True, "max_reply_length": 112, "max_completion_length": 1536}
_LAKE = "ragen/FrozenLake-v0"
_STILL = {"is_slippery": False, "frozen_prob": 0.9, "coordinates": True}  # RAGEN-2's
_SLIPPERY = {"is_slippery": True, "frozen_prob": 0.8}
_LAKE_LIMITS = {name: value for name, value in ENVIRONMENTS[_LAKE].items() if name != "env_kwargs"}
_ONCE = TURN_LIMITS["ragen/Bandit-v0"]
_BANDITS: dict[str, tuple[str, Options]] = {
    "trained names": ("ragen/Bandit-v0", {"names": "ragen2-train"}),
    "unseen names": ("ragen/Bandit-v0", {"names": "ragen2-test"}),
    "risky Librarian": ("ragen/Bandit-v0", {"names": "ragen1-test"}),
    "Bandit": ("ragen/Bandit-v0", {}),
    "BanditRev": ("ragen/BanditRev-v0", {}),
}
# Noise 1: both arms equally often, so that only the form of an answer is learnt, and to read the names in the prompt.
# LoRA, because all weights recite the names of the demonstrations at other bandits as well.
_ANY_ARM = {
    **WARM_START,
    "env_kwargs": {"names": DEMONSTRATED},
    "demonstrations": 320,
    "noise": 1.0,
    "demo_lora_r": 32,
    "demo_learning_rate": 2e-4,
    "demo_batch_size": 8,
}
# The pairs that are trained on among them, as often one arm as the other. Without them the model prefers one arm of
# each pair, 0.38 of them the right ones, misspells a tenth of the names, and learns to be certain: after 50 updates
# what it preferred of a pair is nearly all of its replies, right or wrong (runs that are not kept).
_EITHER_ARM = {
    **_ANY_ARM,
    **{"bf16": True, "demonstrations": 512},
    "env_kwargs": {"names": [*DEMONSTRATED, *map(list, TRAIN_PAIRS * 4)]},
}
_BANDIT_TRAINING = {
    # Divided by the std of a group, the expected step is away from the better arm (docs/decisions.md).
    "scale_rewards": "none",
    # A choice tells little, since the better arm mostly pays nothing. So 128 choices a rollout, at 16 bandits.
    "per_device_train_batch_size": 16,
    # At 1e-4 ten updates settle on whatever paid first, in groups of 32 as well.
    "learning_rate": 4e-5,
    "entropy_coef": 0.01,
    "max_steps": 160,
}
# Groups of 32 cost little, since they share a prompt. With a bonus of 0.03 noise paid from update 70 on, in a run that
# is not kept: a token of it earns up to 0.03 ln(49,152), more than an arm does on average.
_LARGE_GROUPS = {
    **{"per_device_train_batch_size": 32, "gradient_accumulation_steps": 16, "num_generations": 32},
    **{"learning_rate": 5e-5, "lr_scheduler_type": "linear", "entropy_coef": 0.01, "max_steps": 100},
}
# A thought puts all bandits before one question: is what sounds daring the better choice?
_BANDIT_THOUGHTS = {"scale_rewards": "none", "learning_rate": 1e-4, "max_steps": 40}
_TEN = {"max_turns": 5, "max_actions_per_turn": 2, "max_actions": 10}
# bfloat16 takes half of the time of a rollout on a CPU with AMX, and on a Zen 5; FASTER takes it where it is faster.
HALF = {"bf16": True}
BF16 = "{bf16}"
FASTER = {"bf16": BF16}
_ALL = {"starpo_s": FASTER, "astar_po": FASTER}
# Of 64 trajectories a rollout, play settles early: most groups then agree, one or two of eight are learnt from, and far
# goals are rarely among them. At a constant rate the gradients grow from update 90 on; with a falling rate and half of
# the groups two runs end 0.15 and 0.17 above the warm start. So: 128 trajectories, as RAGEN has, a quarter kept. After
# 60 such updates success still rose on the way; 120 end where 60 do, 0.18 above the warm start.
_MORE_STARTS = {**HALF, "gradient_accumulation_steps": 16, "max_steps": 120, "lr_scheduler_type": "linear"}
_SETTLING = {"lr_scheduler_type": "linear", "filter_ratio": 0.5, "entropy_coef": 0.003}


def _still_lake(**options: Any) -> Game:
    """RAGEN-2's lake without thoughts, to begin with one warm start or another."""
    evaluations = {"held out": (_LAKE, _STILL)}
    return Game(env=_LAKE, env_kwargs=_STILL, play={**_SHORT, **_LAKE_LIMITS}, evaluations=evaluations, **options)


GAMES: dict[str, Game] = {
    "frozenlake": _still_lake(
        warm_start=WARM_START,
        training={"max_steps": 100},
        played_greedily=("astar_po",),
        algorithms={
            "starpo_s": _MORE_STARTS,
            "starpo_s_half_as_long": {**_MORE_STARTS, "max_steps": 60},
            "starpo_s_falling_rate": _SETTLING,
            "starpo_s_constant_rate": {},
            "starpo_s_60_updates": {"max_steps": 60},
            "starpo_s_lower_rate": {"max_steps": 60},
            "starpo_s_all_weights": {**FASTER, "max_steps": 60},
            "astar_po": {**FASTER, "max_steps": 60},
        },
        seeds=(0, 1, 2),
        seeds_of={
            "starpo_s": (0,),
            "starpo_s_falling_rate": (0, 1),
            "starpo_s_constant_rate": (1,),
            "starpo_s_60_updates": (0,),
            "starpo_s_lower_rate": (0,),
            "starpo_s_all_weights": (0,),
        },
    ),
    "frozenlake_256": _still_lake(  # whose warm start teaches the form of an answer and less of the lake
        warm_start={**WARM_START, **HALF, "demonstrations": 256},
        algorithms={},
        minutes=(4, 5, 0.9),
    ),
    "frozenlake_512": _still_lake(
        warm_start={**WARM_START, **FASTER, "demonstrations": 512},
        algorithms={},
        minutes=(4, 10, 0.5),
    ),
    "frozenlake_640": _still_lake(  # a little above random play: is that enough to begin with?
        warm_start={**WARM_START, **FASTER, "demonstrations": 640},
        algorithms={"starpo_s_falling_rate": {**FASTER, "max_steps": 80, "lr_scheduler_type": "linear"}},
        seeds=(0, 1),
        minutes=(4, 10, 0.9),
    ),
    "bandit": Game(
        env="ragen/Bandit-v0",
        env_kwargs={"names": "ragen2-train"},
        play={**_SHORT, **_ONCE},
        evaluations=_BANDITS,
        warm_start=_EITHER_ARM,
        training=_BANDIT_TRAINING,
        played_greedily=("starpo_s", "astar_po"),
        algorithms={
            "starpo_s": {**HALF, **_LARGE_GROUPS, "filter_ratio": 1.0},
            "astar_po": {**FASTER, "max_steps": 60},
        },
        seeds=(0, 1, 2),
        minutes=(5, 6, 0.6),
    ),
    "bandit_other_pairs": Game(
        env="ragen/Bandit-v0",
        env_kwargs={"names": OTHER_PAIRS},
        play={**_SHORT, **_ONCE},
        evaluations={"64 other pairs": ("ragen/Bandit-v0", {"names": OTHER_PAIRS})},
        warm_start={},
        algorithms={"starpo_s": {}},
        seeds=(0, 1, 2),
        trained_in="bandit",
        minutes=(1, 0, 0),
    ),
    "bandit_other_names": Game(  # whose warm start has none of the names that are trained on
        env="ragen/Bandit-v0",
        env_kwargs={"names": "ragen2-train"},
        play={**_SHORT, **_ONCE},
        evaluations=_BANDITS,
        warm_start=_ANY_ARM,
        training=_BANDIT_TRAINING,
        algorithms={"starpo_s_more_entropy": {"filter_ratio": 1.0}},
        minutes=(5, 6, 0.6),
    ),
    "bandit_thoughts": Game(
        env="ragen/Bandit-v0",
        env_kwargs={"names": "ragen2-train"},
        play={**_THOUGHTS, **_ONCE},
        evaluations=_BANDITS,
        warm_start={
            **_ANY_ARM,
            "demonstrations": 512,
            "env_kwargs": {"names": [*DEMONSTRATED, *map(list, TRAIN_PAIRS)]},
        },
        training=_BANDIT_THOUGHTS,
        algorithms={"starpo_s": {"filter_ratio": 1.0}},
        seeds=(0, 1, 2),
        minutes=(12, 12, 1.5),
    ),
    "frozenlake_thoughts": Game(
        env=_LAKE,
        env_kwargs=_STILL,
        play={**_THOUGHTS, **_LAKE_LIMITS},
        evaluations={"held out": (_LAKE, _STILL)},
        warm_start={**WARM_START, **FASTER},
        played_greedily=("starpo_s",),
        algorithms={"starpo_s": {**FASTER, "max_steps": 40}},
        seeds=(0, 1, 2),
        minutes=(6, 15, 1.3),
    ),
    "sokoban": Game(
        env="ragen/Sokoban-v0",
        env_kwargs={},
        play={**_SHORT, **_TEN, "max_completion_length": 1536},
        evaluations={"held out": ("ragen/Sokoban-v0", {})},
        warm_start={**WARM_START, **HALF},
        played_greedily=("starpo_s", "astar_po"),
        algorithms={"starpo_s": FASTER, "astar_po": {**FASTER, "max_steps": 40}},
        minutes=(5, 20, 1.0),
    ),
    "frozenlake_slippery": Game(
        env=_LAKE,
        env_kwargs=_SLIPPERY,
        play={**_SHORT, **_TEN, "max_completion_length": 1536},
        evaluations={"held out": (_LAKE, _SLIPPERY)},
        warm_start={**WARM_START, **FASTER},
        training={"max_steps": 40},
        algorithms=_ALL,
        seeds=(0, 1, 2),
        seeds_of={"astar_po": (0,)},
        minutes=(5, 12, 0.9),
    ),
    "countdown": Game(
        env="ragen/Countdown-v0",
        env_kwargs={},
        play={**_SHORT, **_ONCE, "max_reply_length": 48},
        evaluations={"held out": ("ragen/Countdown-v0", {})},
        warm_start={**WARM_START, **FASTER, "noise": 0.0},
        played_greedily=("starpo_s", "astar_po"),
        algorithms=_ALL,
        minutes=(1, 6, 0.4),
    ),
    "toyshop": Game(
        env="ragen/ToyShop-v0",
        env_kwargs={"split": "train"},
        play={**_SHORT, **TURN_LIMITS["ragen/ToyShop-v0"], "max_reply_length": 32, "max_completion_length": 2048},
        evaluations={"256 prompts": ("ragen/ToyShop-v0", {"split": "eval"})},
        warm_start={**WARM_START, **FASTER},
        training={"max_steps": 40},
        algorithms=_ALL,
        minutes=(6, 18, 1.3),
    ),
}

# RAGEN's scale, for a GPU: 200 updates on 8 start states with 16 trajectories each, with thoughts, a critic and a
# quarter of the groups (the preset), in the environments of its first paper. Rates are those of LoRA.
PAPER_TRAINING: dict[str, Any] = {
    "preset": "starpo-s",
    "lora_r": 64,
    "lora_alpha": 64,
    "learning_rate": 1e-5,
    "critic_learning_rate": 1e-4,
    "eval_steps": 10,
    "save_steps": 10,
}
PAPER_PLAY: dict[str, Any] = {"think": True, "max_reply_length": 400, "max_completion_length": 3600}
