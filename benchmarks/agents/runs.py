"""Runs: what is done for each game, as commands of the package, in the order of their worth.

A run has a name (``frozenlake/starpo_s-seed0``) and steps. A step is a command and the file that it writes last: where
that file is, the step is done. The folder of a run is named after a digest of its commands and of those of the run that
it needs, so that changed settings have another folder.
"""

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from learning.store import digest

from agents.games import (
    ALGORITHMS,
    CURVE_EPISODES,
    EPISODES,
    GAMES,
    PAPER_PLAY,
    PAPER_TRAINING,
    TRAINING,
    Game,
    Options,
)

# Names of folders that commands take; they are known when a run is carried out, and so is BF16: what is faster there.
MODEL, HERE, NEEDED = "{model}", "{here}", "{needed}"
# Of the official products of WebShop, which are no part of the project: the folder in RAGEN_WEBSHOP_DATA.
DATA = "{data}"
MEMORY = "memory"


@dataclass(frozen=True)
class Step:
    """A command of the package, and what is there once it is done.

    Attributes:
        name: What it does; also the folder that it writes.
        command: Of ``python -m ragen_trl``, or ``memory`` (``agents.memory_probe``).
        options: Its options; ``MODEL``, ``HERE`` and ``NEEDED`` in them stand for folders.
        writes: The file that it writes last.
        evaluations: Names of what an evaluation plays, in its order.
    """

    name: str
    command: str
    options: Options
    writes: str = "summary.json"
    evaluations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes:
        game: A key of ``GAMES``, or ``MEMORY``.
        stage: ``downloaded``, ``warm_start``, a key of ``ALGORITHMS``, ``paper``, or what memory is measured of.
        seed: Of training; ``None`` where there is none.
        steps: What is done, in this order.
        minutes: How long that may take on two cores.
        model: The model's name, for the digest.
        needs: The run that makes the model that this one begins with.
    """

    game: str
    stage: str
    seed: int | None
    steps: tuple[Step, ...]
    minutes: float
    model: str
    needs: "Run | None" = None

    @property
    def name(self) -> str:
        """On the command line and in tables."""
        return f"{self.game}/{self.stage}" + ("" if self.seed is None else f"-seed{self.seed}")

    @property
    def settings(self) -> dict[str, Any]:
        """What the results depend on."""
        steps = [{"name": step.name, "command": step.command, "options": dict(step.options)} for step in self.steps]
        needed = None if self.needs is None else self.needs.settings
        return {"model": self.model, "steps": steps, "needs": needed}

    @property
    def digest(self) -> str:
        """Of the settings, whatever the number of episodes: more of them are added to those that were played."""
        return digest(_of_any_length(self.settings))

    @property
    def plays_real_products(self) -> bool:
        """Whether it wants the official products of WebShop, which are no part of the project."""
        return any(DATA in json.dumps(dict(step.options)) for step in self.steps)

    def folder(self, root: Path) -> Path:
        """Where it writes."""
        return root / self.game / f"{self.name.partition('/')[2]}-{self.digest[:8]}"


def name_of(model: str) -> str:
    """A model's name in digests: of the hub the whole id; of a folder or file here also what its weights are."""
    path = Path(model)
    if model.startswith("models/") or not path.exists():
        return path.name if model.startswith("models/") else model
    weights = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    return f"{path.name}-{_content_of(*weights)}"


def _of_any_length(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the usual number of episodes in every evaluation."""
    steps = [
        {**step, "options": {**step["options"], "episodes": EPISODES}} if step["command"] == "eval" else step
        for step in settings["steps"]
    ]
    needed = settings["needs"]
    return {**settings, "steps": steps, "needs": None if needed is None else _of_any_length(needed)}


@functools.cache
def _content_of(*files: Path) -> str:
    """A digest of files."""
    found = hashlib.sha256()
    for file in files:
        found.update(file.read_bytes())
    return found.hexdigest()[:8]


def all_runs(model: str, games: Mapping[str, Game] = GAMES) -> list[Run]:
    """Every run, the most telling first.

    Args:
        model: Folder or hub id.
        games: What is played, in this order.
    """
    runs = game_runs(model, games)
    memory = memory_runs(next(iter(games.values())), name_of(model))
    first = next((at for at, run in enumerate(runs) if run.game == "frozenlake_slippery"), len(runs))
    return [*runs[:first], *memory, *runs[first:]]


def game_runs(model: str, games: Mapping[str, Game]) -> list[Run]:
    """The runs of games: of each the warm start, StarPO-S and the model as it was downloaded; then other algorithms."""
    name = name_of(model)
    runs: list[Run] = []
    greedy: list[Run] = []
    for game_name, game in games.items():
        if game.trained_in:
            runs += _played_elsewhere(game_name, game, games[game.trained_in], name)
            continue
        warm = _first_model(game_name, games, name)
        shown = _shown(game_name, game, warm) if game.begins_with else warm
        downloaded = Run(game_name, "downloaded", None, (_evaluation(game, MODEL),), game.evaluation_minutes, name)
        runs += [shown, *_trained(game_name, game, "starpo_s", warm), downloaded]
        for algorithm in game.played_greedily:
            greedy += [_greedy(game, run) for run in _trained(game_name, game, algorithm, warm)]
    others = [
        run
        for game_name, game in games.items()
        for algorithm in game.algorithms
        if algorithm != "starpo_s" and not game.trained_in
        for run in _trained(game_name, game, algorithm, _first_model(game_name, games, name))
    ]
    return [*runs, *others, *greedy]


def _first_model(game_name: str, games: Mapping[str, Game], model: str) -> Run:
    """The warm start that a game's training begins with: its own, or that of another game."""
    made_in = games[game_name].begins_with or game_name
    return warm_start_run(made_in, games[made_in], model)


def _shown(game_name: str, game: Game, warm: Run) -> Run:
    """The warm start of another game, played in this one: sampled and greedy."""
    steps = _sampled_and_greedy(game, f"{NEEDED}/model")
    return Run(game_name, "warm_start", None, steps, 2 * game.evaluation_minutes, warm.model, warm)


def _greedy(game: Game, trained: Run) -> Run:
    """A trained model, played greedily."""
    step = _evaluation(game, f"{NEEDED}/train/model", temperature=0.0)
    stage = f"{trained.stage}_greedy"
    return replace(trained, stage=stage, steps=(step,), minutes=game.evaluation_minutes, needs=trained)


def warm_start_run(game_name: str, game: Game, model: str) -> Run:
    """Demonstrations, then evaluations: sampled and greedy."""
    learn = {"model": MODEL, "env": game.env, "env_kwargs": game.env_kwargs, **game.play, **game.warm_start}
    steps = (
        Step("model", "warm-start", {**learn, "seed": 0, "output_dir": f"{HERE}/model"}, "warm_start.json"),
        *_sampled_and_greedy(game, f"{HERE}/model"),
    )
    return Run(game_name, "warm_start", None, steps, game.minutes[1] + 2 * game.evaluation_minutes, model)


def _played_elsewhere(game_name: str, game: Game, trained: Game, model: str) -> list[Run]:
    """The models of another game in this one: the warm start, and each seed of each algorithm."""
    warm = warm_start_run(game.trained_in, trained, model)
    steps = (_evaluation(game, f"{NEEDED}/model"),)
    runs = [Run(game_name, "warm_start", None, steps, game.evaluation_minutes, model, warm)]
    for algorithm in game.algorithms:
        for run in _trained(game.trained_in, trained, algorithm, warm):
            steps = (_evaluation(game, f"{NEEDED}/train/model"),)
            runs.append(replace(run, game=game_name, steps=steps, minutes=game.evaluation_minutes, needs=run))
    return runs


def _trained(game_name: str, game: Game, algorithm: str, warm: Run) -> list[Run]:
    """Training from the warm start with each of the game's seeds; nothing if the game does not have the algorithm."""
    if algorithm not in game.algorithms:
        return []
    options = {**TRAINING, **game.training, **ALGORITHMS[algorithm], **game.algorithms[algorithm]}
    minutes = game.evaluation_minutes + game.minutes[2] * options["max_steps"]
    minutes += (2 + options["max_steps"] / options["eval_steps"]) * game.minutes[0] * CURVE_EPISODES / EPISODES
    return [
        Run(game_name, algorithm, seed, _training(game, options, seed, f"{NEEDED}/model"), minutes, warm.model, warm)
        for seed in game.seeds_of.get(algorithm, game.seeds)
    ]


def _training(game: Game, options: Options, seed: int, model: str) -> tuple[Step, ...]:
    """Training with a curve on the way, then the evaluation of what came out."""
    train = {
        "model": model,
        "env": game.env,
        "env_kwargs": game.env_kwargs,
        **game.play,
        "eval_episodes": CURVE_EPISODES,
        "num_eval_seeds": CURVE_EPISODES,
        "per_device_eval_batch_size": CURVE_EPISODES,
        "eval_strategy": "steps",
        "record_rollouts": 5,
        **options,
        "seed": seed,
        "output_dir": f"{HERE}/train",
    }
    first, kwargs = next(iter(game.evaluations.values()))
    if (first, kwargs) != (game.env, game.env_kwargs):
        train["eval_env_kwargs"] = kwargs
    return Step("train", "train", train), _evaluation(game, f"{HERE}/train/model")


def _sampled_and_greedy(game: Game, model: str) -> tuple[Step, Step]:
    return _evaluation(game, model), _evaluation(game, model, temperature=0.0)


def _evaluation(game: Game, model: str, temperature: float = 1.0) -> Step:
    """256 held-out start states of every evaluation, with random play and the oracle beside the model."""
    name = "sampled" if temperature else "greedy"
    options = {
        "model": model,
        "env": [f"{env}:{json.dumps(kwargs)}" for env, kwargs in game.evaluations.values()],
        **game.play,
        "episodes": game.episodes,
        "eval_temperature": temperature,
        "side_by_side": game.side_by_side,
        "output_dir": f"{HERE}/{name}",
    }
    return Step(name, "eval", options, evaluations=tuple(game.evaluations))


def memory_runs(game: Game, model: str) -> list[Run]:
    """The peak of two updates of all weights and of LoRA, with gradient checkpointing, a trajectory at a time.

    AdamW makes its moments in the first update; so the second one holds all that training holds.
    """
    shared = {
        "model": MODEL,
        "env": game.env,
        "env_kwargs": game.env_kwargs,
        **game.play,
        **TRAINING,
        "algo": "starpo",
        "beta": 0.0,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4,
        "num_generations": 4,
        "gradient_checkpointing": True,
        "max_steps": 2,
        "eval_episodes": 1,
        "record_rollouts": 0,
        "monitor": "off",
        "save_strategy": "no",
        "seed": 0,
        "overwrite": True,
    }
    kinds = {"all_weights": {"lora_r": 0, "learning_rate": 1e-5}, "lora": {"learning_rate": 1e-4}}
    runs = []
    for kind, changes in kinds.items():
        options = {**shared, **changes, "output_dir": f"{HERE}/train"}
        runs.append(Run(MEMORY, kind, None, (Step("train", "memory", options, "memory.json"),), 4, model))
    return runs


def paper_runs(model: str) -> list[Run]:
    """RAGEN's scale, on a GPU: from the model as it was downloaded, where the paper begins, and from a warm start."""
    games = {
        name: replace(game, play={**game.play, **PAPER_PLAY}, evaluations=dict(game.evaluations), seeds=(0, 1, 2))
        for name, game in GAMES.items()
        if name in ("bandit", "frozenlake_slippery", "sokoban")
    }
    runs, name = [], name_of(model)
    for game_name, small in games.items():
        game = replace(small, play={**small.play, "max_actions_per_turn": min(5, small.play["max_actions"])})
        warm = warm_start_run(game_name, game, name)
        runs += [warm, Run(game_name, "downloaded", None, (_evaluation(game, MODEL),), 5, name)]
        for stage, begin, needs in (("paper", f"{NEEDED}/model", warm), ("paper_as_downloaded", MODEL, None)):
            for seed in game.seeds:
                steps = _training(game, PAPER_TRAINING, seed, begin)
                runs.append(Run(game_name, stage, seed, steps, 200, name, needs))
    return runs


def arguments(options: Options, folders: Mapping[str, str]) -> list[str]:
    """Options as a command line; names of folders are replaced, also of a value in JSON that is nothing else."""
    words: list[str] = []
    for name, value in options.items():
        if value == {} or value is None:
            continue
        words.append(f"--{name}")
        for one in value if isinstance(value, list) else [value]:
            words.append(placed(one if isinstance(one, str) else json.dumps(one), folders))
    return words


def placed(text: str, folders: Mapping[str, str]) -> str:
    """A value of an option with names of folders replaced."""
    for name, folder in folders.items():
        if text.startswith(name):
            return folder + text[len(name) :]
        text = text.replace(json.dumps(name), json.dumps(folder))
    return text


def chosen(runs: Sequence[Run], names: Sequence[str]) -> list[Run]:
    """The runs with these names; a game stands for all of its runs, ``game/stage`` for all of its seeds.

    Raises:
        ValueError: If a name fits no run.
    """
    found: list[Run] = []
    for name in names:
        fitting = [run for run in runs if name in (run.name, run.game, run.name.rpartition("-seed")[0])]
        if not fitting:
            raise ValueError(f"there is no run {name!r}; --list names all of them")
        found += [run for run in fitting if run not in found]
    return found
