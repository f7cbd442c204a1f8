"""From a question as data (``questions/NAME.yaml``) to its runs, each with all settings that its result depends on.

The small model that is built here (``kind: embedded``) is trained by ``training.py``. A pretrained one (``kind:
pretrained``) is trained by the package's own commands, and a run is the options of these.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

QUESTIONS = Path(__file__).resolve().parent / "questions"
# In options of commands: the pretrained model, the folder of the run, that of the run which it needs, and the official
# products of WebShop, which are no part of the project and lie in the folder that RAGEN_WEBSHOP_DATA names.
MODEL, HERE, NEEDED, DATA = "{model}", "{here}", "{needed}", "{data}"
FASTER = "faster"  # of bf16: where products of matrices are faster in it


@dataclass(frozen=True)
class Run:
    """What is done in a folder of its own.

    Attributes:
        game: Name of the game in the question.
        variant: How it is learnt; ``"(warm start)"`` and ``"(baselines)"`` are what runs of the small model need.
        seed: Of training; None where there is none.
        settings: All that the result depends on.
        needs: Runs that have to be finished before.
    """

    game: str
    variant: str
    seed: int | None
    settings: Mapping[str, Any]
    needs: tuple["Run", ...] = ()

    @property
    def name(self) -> str:
        """On the command line."""
        return f"{self.game}/{self.variant}" + ("" if self.seed is None else f"/{self.seed}")

    @property
    def digest(self) -> str:
        """Of the settings, in any order."""
        text = json.dumps(self.settings, sort_keys=True)
        return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return f"{self.settings['kind']}-{self.digest}"


def questions() -> list[str]:
    """The names of all questions."""
    return sorted(path.stem for path in QUESTIONS.glob("*.yaml") if path.stem != "shared")


def read(name: str) -> dict[str, Any]:
    """A question with what its games and variants take over from others (``like:``).

    Games and variants that several questions have are in ``questions/shared.yaml``. What an entry says replaces what it
    takes over; ``play``, ``options`` and ``warm_start`` are added to the others'.
    """
    question, shared = (yaml.safe_load((QUESTIONS / f"{each}.yaml").read_text("utf-8")) for each in (name, "shared"))
    question["name"] = name
    if question.get("kind") == "pretrained":
        return question
    root = {"play": shared["play"], "options": shared["options"], "env_kwargs": {}, "changes": {}, "more_seeds": {}}
    root |= {key: shared[key] for key in ("episodes", "evaluations_per_run", "seeds")}
    known = {game: _over(root, entry) for game, entry in shared["games"].items()}
    games: dict[str, Any] = {}
    for game, entry in question["games"].items():
        games[game] = _over(known.get(entry["like"]) or games[entry["like"]], entry)
    variants = dict(shared["variants"])
    for variant, entry in question.get("variants", {}).items():
        variants[variant] = _over(shared["variants"][entry["like"]], entry) if "like" in entry else entry
    return {**question, "games": games, "variants": variants}


def _over(base: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    both = {key: {**base.get(key, {}), **entry.get(key, {})} for key in ("play", "options", "warm_start")}
    return {**base, **{key: value for key, value in entry.items() if key != "like"}, **both}


def runs_of(question: Mapping[str, Any]) -> list[Run]:
    """The runs of a question: the first seed of everything before the second."""
    if question.get("kind") == "pretrained":
        return pretrained_runs(question)
    places: list[tuple[int, Run]] = []
    for name, game in question["games"].items():
        before = before_training(name, game)
        for variant in game["variants"]:
            how = question["variants"][variant]
            for place, seed in enumerate([*game["seeds"], *game["more_seeds"].get(variant, ())]):
                if "drawn_warm_start" in how:  # its own, drawn like the seed
                    options = {**game["warm_start"]["options"], **how["drawn_warm_start"]}
                    before = before_training(name, _over(game, {"warm_start": {"options": options}}), seed)
                if how.get("only_warm_start"):
                    places.append((place, replace(before[1], variant=variant, seed=seed)))
                    continue
                settings = training_settings(game, variant, how, seed, before[0].folder)
                places.append((place, Run(name, variant, seed, settings, before)))
    return [run for _, run in sorted(places, key=lambda each: each[0])]


# --- the small model ---


def before_training(name: str, game: Mapping[str, Any], seed: int | None = None) -> tuple[Run, Run]:
    """The warm start of a game, and what random play, the oracle and that model reach; without a seed it is 0."""
    lesson = {"env_kwargs": {}, **game["warm_start"]}
    play = {**game["play"], **lesson.pop("play", {})}
    settings = {"kind": "warm_start", "env": game["env"], "warm_start": lesson, "play": play}
    if seed is not None:
        settings["seed"] = seed
    learn = Run(name, "(warm start)", None, settings)
    shown = {key: game[key] for key in ("play", "evaluations", "episodes")}
    settings = {"kind": "baselines", "begins_with": learn.folder, **shown}
    return learn, Run(name, "(baselines)", None, settings, (learn,))


def training_settings(
    game: Mapping[str, Any], name: str, variant: Mapping[str, Any], seed: int, warm_start: str
) -> dict[str, Any]:
    """All that a run depends on; the number of updates follows from the number of trajectories."""
    options = {**game["options"], **variant.get("options", {}), **game["changes"].get(name, {})}
    accumulation = options["gradient_accumulation_steps"]
    micro_batches = options.get("steps_per_generation", accumulation)
    rollouts = math.ceil(game["trajectories"] / (options["per_device_train_batch_size"] * micro_batches))
    options["max_steps"] = max(1, rollouts * micro_batches * options.get("num_iterations", 1) // accumulation)
    shared = ("env", "env_kwargs", "play", "evaluations", "episodes", "evaluations_per_run", "trajectories")
    return {
        "kind": "run",
        "begins_with": warm_start,
        **{key: game[key] for key in shared},
        "config": variant.get("config", "StarPOConfig"),
        "trainer": variant.get("trainer", "StarPOTrainer"),
        "options": options,
        **{key: variant[key] for key in ("lora", "signal_every") if key in variant},
        **{key: game[key] for key in ("smoke",) if key in game},
        "seed": seed,
    }


def small(question: dict[str, Any]) -> dict[str, Any]:
    """The question with sizes so small that it ends in a minute: two rollouts, a few episodes, one seed.

    Each game is played with its first variant, and each variant in the first game that has it.
    """
    if question.get("kind") == "pretrained":
        return small_pretrained(question)
    seen: set[str] = set()
    games = {}
    for name, game in question["games"].items():
        variants = [variant for variant in game["variants"] if variant not in seen] or game["variants"][:1]
        seen |= set(variants)
        lesson = {**game["warm_start"], "model": {"hidden_size": 64, "num_layers": 2}}
        few = {"demonstrations": 1040 // game["play"]["max_turns"], "demo_epochs": 3.0}
        lesson["options"] = {**lesson["options"], **few}
        turns = {"max_turns": min(game["play"]["max_turns"], 5)}
        batch = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "num_generations": 4}
        sizes = {"trajectories": 32, "episodes": 8, "evaluations_per_run": 1, "seeds": [0], "more_seeds": {}}
        entry = {**sizes, "variants": variants, "changes": {}, "smoke": True, "warm_start": lesson}
        games[name] = _over(game, {**entry, "options": batch, "play": turns})
    variants = {name: _small_variant(variant) for name, variant in question["variants"].items()}
    return {**question, "games": games, "variants": variants}


def _small_variant(variant: Mapping[str, Any]) -> dict[str, Any]:
    """A variant for rollouts of 16 trajectories."""
    options = dict(variant.get("options", {}))
    if "steps_per_generation" in options:
        options["steps_per_generation"] = min(options["steps_per_generation"], 4)
    options["per_device_train_batch_size"] = 16 // options.get("steps_per_generation", 1)
    most = {"num_generations": 16, "num_train_seeds": 16, "reference_samples": 2, "max_reference_samples": 4}
    options |= {name: min(options[name], limit) for name, limit in most.items() if name in options}
    return {**variant, "options": options}


# --- a pretrained model ---


def pretrained_runs(question: Mapping[str, Any]) -> list[Run]:
    """Of each game: the model as it was downloaded, its warm start, and training with each algorithm and seed.

    Each is also played: sampled, and as ``VARIANT_greedy`` what the game names. A game may begin with the warm start of
    another one (``begins_with``), or only play what was trained in another one (``trained_in``).
    """
    games, runs = question["games"], []
    for name, game in games.items():
        if "trained_in" in game:
            other = games[game["trained_in"]]
            warm = _warm_start(question, game["trained_in"], other)
            runs.append(_played(name, game, "warm_start", warm))
            for algorithm in game["algorithms"]:
                runs += [
                    _played(name, game, algorithm, run)
                    for run in _trained(question, game["trained_in"], other, algorithm, warm)
                ]
            continue
        made_in = game.get("begins_with", name)
        made = _warm_start(question, made_in, games[made_in])
        warm = made if made_in == name else _played(name, game, "warm_start", made)
        runs += [warm, _played(name, game, "warm_start_greedy", made, temperature=0.0)]
        for algorithm in game.get("algorithms", {}):
            trained = _trained(question, name, game, algorithm, made)
            runs += trained
            if algorithm in game.get("played_greedily", ()):
                variant = f"{algorithm}_greedy"
                runs += [_played(name, game, variant, run, temperature=0.0) for run in trained]
        runs.append(Run(name, "downloaded", None, _agent(game, MODEL, model=question["model"])))
    return runs


def _warm_start(question: Mapping[str, Any], name: str, game: Mapping[str, Any]) -> Run:
    played = {"env": game["env"], "env_kwargs": game["env_kwargs"], **game["play"]}
    learn = {"model": MODEL, **played, **game["warm_start"], "seed": 0, "output_dir": f"{HERE}/model"}
    settings = _agent(game, f"{HERE}/model", model=question["model"], learn=["warm-start", learn])
    return Run(name, "warm_start", None, settings)


def _trained(
    question: Mapping[str, Any], name: str, game: Mapping[str, Any], algorithm: str, warm: Run
) -> list[Run]:
    """Training from the warm start with each of the algorithm's seeds, with a curve on the way."""
    few = question["curve_episodes"]
    options = {
        "model": f"{NEEDED}/model",
        "env": game["env"],
        "env_kwargs": game["env_kwargs"],
        **game["play"],
        **{name: few for name in ("eval_episodes", "num_eval_seeds", "per_device_eval_batch_size")},
        "eval_strategy": "steps",
        "record_rollouts": 5,
        **question["training"],
        **game.get("training", {}),
        **question["algorithms"][algorithm],
        **game["algorithms"][algorithm],
        "output_dir": f"{HERE}/train",
    }
    env, kwargs = next(iter(game["evaluations"].values()))
    if (env, kwargs) != (game["env"], game["env_kwargs"]):
        options["eval_env_kwargs"] = kwargs
    runs = []
    for seed in game.get("seeds_of", {}).get(algorithm, game.get("seeds", [0])):
        learn = ["train", {**options, "seed": seed}]
        settings = _agent(game, f"{HERE}/train/model", needs=warm.digest, learn=learn)
        runs.append(Run(name, algorithm, seed, settings, (warm,)))
    return runs


def _played(name: str, game: Mapping[str, Any], variant: str, made: Run, temperature: float = 1.0) -> Run:
    """A model that another run has made, played in this game or in this way."""
    folder = "model" if made.settings["learn"][0] == "warm-start" else "train/model"
    settings = _agent(game, f"{NEEDED}/{folder}", temperature, needs=made.digest)
    return Run(name, variant, made.seed, settings, (made,))


def _agent(game: Mapping[str, Any], player: str, temperature: float = 1.0, **more: Any) -> dict[str, Any]:
    """The settings of a run: what it learns, if anything, then all evaluations, with random play and the oracle."""
    evaluate = {
        "model": player,
        "env": [f"{env}:{json.dumps(kwargs)}" for env, kwargs in game["evaluations"].values()],
        **game["play"],
        "episodes": game.get("episodes", 256),
        "eval_temperature": temperature,
        "rollout_batch_size": game.get("rollout_batch_size", 64),
        "output_dir": f"{HERE}/evaluation",
    }
    return {"kind": "agent", **more, "names": list(game["evaluations"]), "evaluate": evaluate}


def small_pretrained(question: dict[str, Any]) -> dict[str, Any]:
    """The first game with its first algorithm: two updates and four episodes, for a tiny random model."""
    name, game = next(iter(question["games"].items()))
    algorithm = next(iter(game["algorithms"]))
    few = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "num_generations": 4, "max_steps": 2}
    few |= {"eval_steps": 1, "lora_r": 4, "filter_ratio": 0.5, "steps_per_generation": 1, "bf16": False}
    lesson = {"demonstrations": 32, "demo_learning_rate": 3e-3, "demo_epochs": 3.0, "demo_lora_r": 0, "bf16": False}
    store = {"catalog": "toy"} if "WebShop" in game["env"] else {}
    small = {
        **game,
        "env_kwargs": {**game["env_kwargs"], **store},
        "evaluations": {each: [env, {**kwargs, **store}] for each, (env, kwargs) in game["evaluations"].items()},
        "play": {**game["play"], "bf16": False, "max_turns": min(game["play"]["max_turns"], 3)},
        "warm_start": {**game["warm_start"], **lesson},
        "algorithms": {algorithm: {**game["algorithms"][algorithm], **few}},
        "episodes": 4,
        "seeds": [0],
        "seeds_of": {},
        "played_greedily": [],
    }
    return {**question, "games": {name: small}, "curve_episodes": 4}
