"""Small runs of the games, for smoke tests: two updates in two games, and a few episodes of everything."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agents.games import GAMES, Game, Options
from agents.runs import MEMORY, Run, all_runs, game_runs

SMALL_STARPO: Options = {
    **{"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 4, "max_steps": 2},
    **{"eval_steps": 1, "lora_r": 4, "filter_ratio": 0.5},
}
_SMALL_ASTAR: Options = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "num_train_seeds": 16,
    "reference_samples": 2,
    "max_reference_samples": 2,
    "max_steps": 2,
    "eval_steps": 1,
    "lora_r": 4,
}
# An untrained model learns nothing as an adapter.
SMALL_WARM_START: Options = {
    **{"demonstrations": 256, "demo_learning_rate": 3e-3, "demo_epochs": 3.0},
    **{"demo_lora_r": 0, "demo_batch_size": 4},
}
_SMALL_EVALUATIONS = dict.fromkeys(("episodes", "eval_episodes", "num_eval_seeds", "per_device_eval_batch_size"), 4)


def smoke_runs(model: str) -> list[Run]:
    """Two updates in two games, a few episodes of everything."""
    games = {}
    changes: dict[str, dict[str, Any]] = {
        "frozenlake": {"algorithms": {"starpo_s": SMALL_STARPO}},
        # The names that are single words of the small tokenizer.
        "bandit": {
            "algorithms": {"astar_po": _SMALL_ASTAR},
            "env_kwargs": {},
            "evaluations": {name: GAMES["bandit"].evaluations[name] for name in ("Bandit", "BanditRev")},
        },
    }
    for name, changed in changes.items():
        shown = {name: value for name, value in GAMES[name].warm_start.items() if name != "env_kwargs"}
        warm = {**shown, **SMALL_WARM_START}
        games[name] = replace(GAMES[name], warm_start=warm, seeds=(0,), **changed)
    runs = [few_episodes(run) for run in all_runs(model, games)]
    return [run for run in runs if run.game != MEMORY or run.stage == "lora"]


def few_episodes(run: Run) -> Run:
    """The run, and what it needs, with few episodes in every evaluation; a minute at most."""
    steps = tuple(
        replace(step, options={name: _SMALL_EVALUATIONS.get(name, value) for name, value in step.options.items()})
        for step in run.steps
    )
    return replace(run, steps=steps, minutes=1.0, needs=None if run.needs is None else few_episodes(run.needs))


def shop_runs(model: str, game: Game, algorithms: Mapping[str, Options]) -> list[Run]:
    """Two updates of each algorithm in the smallest store, with a seed each."""
    kwargs = {"catalog": "toy", "observation_mode": "short"}
    env, (_, evaluated) = game.env, game.evaluations["other products"]
    small = replace(
        game,
        env_kwargs={**game.env_kwargs, **kwargs},
        evaluations={"other products": (env, {**evaluated, **kwargs})},
        warm_start={**game.warm_start, **SMALL_WARM_START, "demonstrations": 32},
        algorithms=algorithms,
        seeds=(0,),
    )
    return [few_episodes(run) for run in game_runs(model, {"webshop": small})]
