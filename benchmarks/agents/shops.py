"""The shops as games of a pretrained model: settings of their runs, as data, over those of ``games.py``.

WebShop has short pages, products of one split only, and credit on the way (``tiered``) in training; what is evaluated
is the purchase alone. ToyShop has its 256 fixed prompts, and thoughts. Left out: whether a thought fits what was
bought, which the bonus does not read.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agents.games import EPISODES, FASTER, WARM_START, Game, Options
from agents.runs import DATA
from ragen_envs import TURN_LIMITS

_SHOP = "ragen/WebShop-v0"
_PLAY: dict[str, Any] = {
    **FASTER,
    **{"think": False, "max_turns": 9, "max_actions": 9, "max_actions_per_turn": 1},
    **{"max_reply_length": 48, "max_completion_length": 3072},
}
_TRAINING: dict[str, Any] = {
    "learning_rate": 3e-4,
    "lr_scheduler_type": "linear",
    "max_steps": 24,
    "eval_steps": 8,
    "save_steps": 4,
    "max_completion_length": 3072,
    "per_device_train_batch_size": 4,
    "gradient_accumulation_steps": 16,
}
# 16 trajectories an update, as many as StarPO-S learns from; four samples of each start state before.
_ONE_A_PROMPT: dict[str, Any] = {"gradient_accumulation_steps": 4, "max_reference_samples": 4}
# Finished runs of StarPO-S did not have it; A*-PO always logs it.
_KL: dict[str, Any] = {"log_kl": True}
_SHOPPER: dict[str, Any] = {**WARM_START, "demonstrations": 512, "demo_batch_size": 2}
_THOUGHTS: dict[str, Any] = {"think": True, "max_reply_length": 112, "max_completion_length": 2560}


def _store(split: str, reward: str, catalog: str = "synthetic") -> dict[str, Any]:
    return {"catalog": catalog, "split": f"{split}_by_product", "observation_mode": "short", "reward": reward}


# On a GPU, where a pass takes the same time for few rows and for many: twice as many trajectories a rollout, two
# updates on those that StarPO-S keeps, and no curve. A*-PO has one trajectory a prompt, and one update a rollout.
_LARGER: dict[str, Any] = {
    **{"learning_rate": 1e-3, "per_device_train_batch_size": 8, "merge_lora": True},
    **{"eval_strategy": "no", "save_steps": 10},
}
_TWO_UPDATES: dict[str, Any] = {
    **_LARGER,
    **_KL,
    **{"gradient_accumulation_steps": 8, "steps_per_generation": 16, "filter_ratio": 0.5, "max_steps": 20},
}
_ONE_UPDATE: dict[str, Any] = {
    **_LARGER,
    **{"gradient_accumulation_steps": 8, "num_train_seeds": 64, "max_reference_samples": 4, "max_steps": 12},
}
# Both with 1,792 trajectories: 14 rollouts of 128; or 512 of the reference, four a start state, and 20 rollouts of 64.
_STARPO_S_AS_MANY: dict[str, Any] = {**_TWO_UPDATES, "max_steps": 28}
_ASTAR_PO_AS_MANY: dict[str, Any] = {**_ONE_UPDATE, "num_train_seeds": 128, "max_steps": 20}


def _webshop(catalog: str, algorithms: Mapping[str, Options], minutes: tuple[float, float, float]) -> Game:
    return Game(
        env=_SHOP,
        env_kwargs=_store("train", "tiered", catalog),
        play=_PLAY,
        evaluations={"other products": (_SHOP, _store("test", "fixed", catalog))},
        episodes=500,  # all that the split has
        warm_start={**_SHOPPER, "noise": 0.05},
        training=_TRAINING,
        algorithms=algorithms,
        played_greedily=("starpo_s", "starpo_s_higher_rate"),
        minutes=minutes,
    )


SHOPS: dict[str, Game] = {
    "webshop": _webshop(
        "synthetic",
        {
            "starpo_s": {},
            "starpo_s_higher_rate": {"max_steps": 48, "eval_steps": 16},
            "gigpo": _KL,
            "starpo_s_success": {"env_kwargs": _store("train", "success"), "eval_steps": 12},
            "astar_po_half_as_long": {**_ONE_A_PROMPT, "max_steps": 12},
            "astar_po_higher_rate": _ONE_A_PROMPT,
            "starpo_s_all_weights": _KL,
        },
        minutes=(10, 25, 2.0),
    ),
    "toyshop_thoughts": Game(
        env="ragen/ToyShop-v0",
        env_kwargs={"split": "train"},
        play={**FASTER, **TURN_LIMITS["ragen/ToyShop-v0"], **_THOUGHTS},
        evaluations={"256 prompts": ("ragen/ToyShop-v0", {"split": "eval"})},
        warm_start={**WARM_START, "demonstrations": 384},
        training={**_TRAINING, "max_completion_length": 2560},
        algorithms={"starpo_s": {}, "starpo_s_consistency": {"consistency_weight": 0.4}, "astar_po": _ONE_A_PROMPT},
        minutes=(3, 13, 1.2),
    ),
    # Demonstrations of the generated shop serve here as well. Pages are twice as long.
    "webshop_official": replace(
        _webshop(DATA, {"starpo_s": _KL}, minutes=(10, 0, 4.0)), begins_with="webshop", warm_start={}, episodes=EPISODES
    ),
}

_GPU_MINUTES = (0.3, 1, 0.3)  # of an H200 that does several runs at a time
ON_A_GPU: dict[str, Game] = {
    "webshop": replace(
        _webshop(
            "synthetic",
            {
                "starpo_s": _TWO_UPDATES,
                "astar_po": _ONE_UPDATE,
                "gigpo": _TWO_UPDATES,
                "starpo_s_final": {**_TWO_UPDATES, "env_kwargs": _store("train", "fixed")},
            },
            minutes=_GPU_MINUTES,
        ),
        warm_start={**_SHOPPER, **{"noise": 0.05, "demonstrations": 2048, "demo_batch_size": 8, "demo_held_out": 0.0}},
        seeds=(0, 1, 2),
        seeds_of={"astar_po": (0,), "gigpo": (0,), "starpo_s_final": (0,)},
        side_by_side=250,
    ),
    # The demonstrations of two cores, which leave more to learn: StarPO-S and A*-PO with as many trajectories.
    "webshop_512": replace(
        _webshop(
            "synthetic",
            {"starpo_s": _STARPO_S_AS_MANY, "astar_po": _ASTAR_PO_AS_MANY},
            minutes=_GPU_MINUTES,
        ),
        seeds=(0, 1, 2),
        side_by_side=250,
    ),
    "webshop_official": replace(
        _webshop(DATA, {"starpo_s": _TWO_UPDATES}, minutes=_GPU_MINUTES),
        **{"begins_with": "webshop_512", "warm_start": {}, "episodes": EPISODES, "side_by_side": 256},
    ),
}
"""WebShop at a larger scale: twice the trajectories a rollout; four times the demonstrations, or as many."""
