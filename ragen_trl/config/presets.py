r"""Published settings by name, as data: ``python -m ragen_trl train --preset NAME``, each value with its source.

A preset replaces defaults and the recipe; a ``--config`` file and the command line replace the preset. It names no
model. Values are the source's, in this package's options; where an option has another unit or form, the source's text
says how its value was made. The two student reports trained other losses than the A\*-PO that they name.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ragen_envs import TURN_LIMITS


@dataclass(frozen=True)
class Values:
    """Options that come from one source, which says how they were converted; in ``envs`` only, if any are named."""

    source: str
    options: Mapping[str, Any] = field(default_factory=dict)
    envs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preset:
    """Published settings: what they are and with which model, and the options; the last value of one counts."""

    about: str
    values: tuple[Values, ...]


_LAKE, _SHOP, _TOY_SHOP = "ragen/FrozenLake-v0", "ragen/WebShop-v0", "ragen/ToyShop-v0"
_ONE_SHOT = ("ragen/Bandit-v0", "ragen/BanditRev-v0", "ragen/Countdown-v0")
# Some environments have limits of their own, and RAGEN's lake slips.
_LIMITS = (
    Values("RAGEN's code, config/envs.yaml", TURN_LIMITS[_ONE_SHOT[0]], _ONE_SHOT),
    Values("RAGEN's code, config/_6_webshop.yaml: WebShop's score for the purchase alone", {
        **TURN_LIMITS[_SHOP], "env_kwargs": {"reward": "fixed"},
    }, (_SHOP,)),
    Values("ToyShop's report; it has 256 prompts to evaluate on", {
        **TURN_LIMITS[_TOY_SHOP], "eval_episodes": 256,
    }, (_TOY_SHOP,)),
    Values("RAGEN's code, config/envs.yaml", {"env_kwargs": {"frozen_prob": 0.8, "is_slippery": True}}, (_LAKE,)),
)
_RAGEN_PAPER = Values(
    "RAGEN's paper, experimental settings: 8 start states · 16 trajectories a rollout",
    {
        "advantage": "gae",
        "num_generations": 16,
        "per_device_train_batch_size": 4,
        "steps_per_generation": 32,
        "max_turns": 5,
        "max_actions_per_turn": 5,
        "max_actions": 10,
    },
)
_EVALUATED = Values(
    "RAGEN's paper: evaluated on 256 prompts at T = 0.5", {"eval_episodes": 256, "eval_temperature": 0.5}
)
_RAGEN_CODE = Values(
    "RAGEN's code, config/base.yaml",
    {
        "entropy_coef": 0.001,
        "gamma": 1.0,
        "gae_lambda": 1.0,
        "format_penalty": -0.1,
        "max_reply_length": 400,
        "max_completion_length": 3600,
        "train_seed_start": 10_000,
        "critic_batch_size": 32,
        "critic_epochs": 1,
    },
)
_VERL_ACTOR = {"learning_rate": 1e-6, "weight_decay": 0.01, "epsilon": 0.2, "delta": 3.0, "num_iterations": 1}
_VERL = Values(
    "verl's defaults, ppo_trainer.yaml; its GAE gives the end of an episode no value",
    {**_VERL_ACTOR, "critic_learning_rate": 1e-5, "value_clip": 0.5, "bootstrap": "none"},
)
# A rollout has 128 trajectories, in micro-batches of 4.
_FOUR_UPDATES = {"gradient_accumulation_steps": 8}

PRESETS: dict[str, Preset] = {
    "ragen": Preset(
        "Plain StarPO in its PPO form: RAGEN's baseline (arXiv 2504.20073, Qwen2.5-0.5B-Instruct).",
        (
            Values("RAGEN's code, train_all.sh, USE_PPO and USE_BASE, whose KL flags have no effect in PPO", {
                "algo": "starpo", "beta": 0.0, "epsilon_high": 0.2, "filter_ratio": 1.0,
            }),
            _RAGEN_PAPER,
            _EVALUATED,
            Values("RAGEN's paper: 200 rollouts, four updates of 32 trajectories each", {
                **_FOUR_UPDATES, "max_steps": 800,
            }),
            _RAGEN_CODE,
            _VERL,
            *_LIMITS,
        ),
    ),
    "starpo-s": Preset(
        "StarPO-S with a critic: RAGEN's stabilised form (arXiv 2504.20073, Qwen2.5-0.5B-Instruct).",
        (
            Values("RAGEN's paper, section on StarPO-S: a quarter of the groups, no KL, clip-higher", {
                "algo": "starpo-s", "filter_ratio": 0.25, "filter_strategy": "top_k", "beta": 0.0, "epsilon_high": 0.28,
            }),
            _RAGEN_PAPER,
            _EVALUATED,
            Values("RAGEN's paper: 200 rollouts; the kept quarter is one update of 32 trajectories", {
                "gradient_accumulation_steps": 32, "max_steps": 200,
            }),
            _RAGEN_CODE,
            _VERL,
            *_LIMITS,
        ),
    ),
    "ragen2": Preset(
        "RAGEN-2's PPO with its filter (arXiv 2604.06268, Qwen2.5-3B): FrozenLake does not slip there.",
        (
            Values("RAGEN-2's code, run_main_table_diff_algo.sh: PPO, top-p 0.9, 400 rollouts of four updates", {
                "algo": "starpo-s", "filter_strategy": "top_p", "filter_ratio": 0.9, "max_steps": 1600, **_FOUR_UPDATES,
            }),
            _RAGEN_PAPER,
            _RAGEN_CODE,
            Values("RAGEN-2's code, config/base.yaml", {
                "beta": 0.0, "epsilon_high": 0.28, "max_actions_per_turn": 2,
                "eval_episodes": 512, "eval_temperature": 0.5,
            }),
            _VERL,
            *_LIMITS,
            Values("RAGEN-2's code, config/_3_frozen_lake.yaml", {
                "env_kwargs": {"frozen_prob": 0.9, "is_slippery": False, "coordinates": True},
            }, (_LAKE,)),
            Values("RAGEN-2's code, tag CoordSokoban", {"env_kwargs": {"coordinates": True}}, ("ragen/Sokoban-v0",)),
        ),
    ),
    "gigpo-webshop": Preset(
        "GiGPO in WebShop (arXiv 2505.10978, Qwen2.5-1.5B-Instruct: success 67.4 %).",
        (
            Values("verl-agent, run_webshop.sh: 16 start states · 8 trajectories, 150 rollouts, updates of 64", {
                "env": _SHOP,
                "algo": "starpo",
                "advantage": "gigpo",
                "num_generations": 8,
                "per_device_train_batch_size": 8,
                "steps_per_generation": 16,
                "gradient_accumulation_steps": 8,
                "max_steps": 300,
                "max_turns": 15,
                "max_actions_per_turn": 1,
                "max_actions": 15,
                "max_reply_length": 512,
                "format_penalty": -0.1,
                "beta": 0.01,
                "turn_gamma": 0.95,
                "step_weight": 1.0,
                "eval_temperature": 0.4,
            }),
            Values("GiGPO's paper, WebShop: 67.4 % without the group's std, 65.0 % with it", {"scale_rewards": "none"}),
            Values("verl-agent's defaults, ppo_trainer.yaml", {
                **_VERL_ACTOR, "epsilon_high": 0.2, "entropy_coef": 0.001,
            }),
            Values(
                "not verl-agent's, which pays 10 for a score of 1, else 0: here a purchase pays its score, from "
                "0 to 1. Without a group's std, KL, entropy and format terms weigh ten times as much here",
                {"env_kwargs": {"reward": "fixed"}},
                (_SHOP,),
            ),
            Values("RAGEN's code, config/_6_webshop.yaml; verl-agent shows the last two turns only", {
                "max_completion_length": 15_000,
            }),
        ),
    ),
    "a-star-po-paper": Preset(
        "A*-PO's own values (arXiv 2505.20686, Qwen2.5 base models, single-turn mathematics, rewards 0 and 1).",
        (
            Values("A*-PO's code, apo_math.sh", {
                "algo": "a-star-po",
                "beta1": 0.5,
                "beta2": 1e-3,
                "reference_samples": 8,
                "max_reference_samples": 8,
                "learning_rate": 1e-6,
                "max_reply_length": 1024,
                "return_range": 1.0,
            }),
            Values("A*-PO's code: one trajectory a prompt, updates of 128; there two to a rollout, here one", {
                "num_generations": 1, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 32,
            }),
            Values("A*-PO's paper: the loss as it is printed", {"loss_scale": "paper"}),
            Values("verl's defaults, which its script leaves on", {"entropy_coef": 0.001, "max_grad_norm": 1.0}),
        ),
    ),
    "report-1": Preset(
        "First student report on WebShop (Qwen2.5-3B): its values, trained with A*-PO's regression. Its own loss was a "
        "weighted imitation in which the reward had no effect.",
        (
            Values("report, table: β 0.3 of weights and V*, here of both terms, in rewards from 0 to 1", {
                "env": _SHOP, "algo": "a-star-po", "beta1": 0.3, "beta2": 0.3, "return_range": 1.0,
            }),
            Values("report, table: KL 0.03 a token, learning rate 3e-7, 100 updates", {
                "kl_coef": 0.03, "learning_rate": 3e-7, "max_steps": 100,
            }),
            Values("report: a reward on the way to the purchase; here the tiered one", {
                "env_kwargs": {"reward": "tiered"},
            }, (_SHOP,)),
            Values("report's code: one trajectory an update, 10 turns of one action", {
                "num_generations": 1,
                "per_device_train_batch_size": 1,
                "gradient_accumulation_steps": 1,
                "max_turns": 10,
                "max_actions_per_turn": 1,
                "max_actions": 10,
            }),
        ),
    ),
    "report-2": Preset(
        "Second student report on ToyShop: its values, trained with A*-PO's regression. Its own loss pushed bad "
        "replies down without a bound.",
        (
            Values("report, table: temperature 6 multiplies advantages, which in A*-PO is β = 1/6 of both terms", {
                "env": _TOY_SHOP, "algo": "a-star-po", "beta1": 1 / 6, "beta2": 1 / 6, "return_range": 1.0,
            }),
            Values("report, table: KL 0.05 a token, learning rate 3e-5, 300 updates of 2 start states · 4", {
                "kl_coef": 0.05,
                "learning_rate": 3e-5,
                "max_steps": 300,
                "num_generations": 4,
                "per_device_train_batch_size": 8,
                "gradient_accumulation_steps": 1,
            }),
            Values("report, table: λ = 0.4 of the bonus for actions that follow from thoughts, where there are any", {
                "consistency_weight": 0.4,
            }),
            Values("report: 5 turns of one action", {"max_turns": 5, "max_actions_per_turn": 1, "max_actions": 5}),
        ),
    ),
}


def preset_options(name: str, env: str | None = None) -> dict[str, Any]:
    """The options of the preset ``name`` in ``env``; without ``env``, those that hold in all environments.

    Example:
        >>> preset_options("starpo-s", "ragen/Bandit-v0")["max_actions"], preset_options("starpo-s")["max_actions"]
        (1, 10)
    """
    chosen = [values for values in PRESETS[name].values if not values.envs or env in values.envs]
    return {option: value for values in chosen for option, value in values.options.items()}
