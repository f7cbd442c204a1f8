"""Can a small model that sees only pictures learn FrozenLake, and does it look at them?

A Qwen2.5-VL of 0.2 M parameters learns to say what is where on a picture, imitates a noisy oracle, and is trained by
StarPO-S. Each result stands beside its controls: a blank picture, the pictures of other episodes, the text instead of
the picture, random play, and the oracle; and a text model of the same size, which imitates and trains alike. There are
few lakes of this size, so no lesson and no demonstration begins at a lake of the evaluation, and the lakes that
training never began at are counted by themselves.

Run it: ``python benchmarks/pictures.py --seed 0`` once for each seed, then the rows of all seeds are in the results.
``--smoke`` plays two updates.
"""

import argparse
import json
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from learning.plots import figure
from learning.seeing import demonstrated, imitate, lessons, places_right
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ragen_envs import AgentTurns, demonstration
from ragen_trl import StarPOSConfig, StarPOTrainer, evaluate
from ragen_trl.evaluation.evaluator import play_held_out, summarise
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_model
from ragen_trl.policies.vision.processing import PictureProcessor, load_processor
from ragen_trl.policies.vision.tiny_model import build_tiny_vision_model, build_tiny_vision_tokenizer
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.rollout.interfaces import Policy, TurnEnv
from ragen_trl.rollout.seeds import WARM_START, evaluation_seeds
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance

ENV = "ragen/FrozenLake-v0"
LAKE: dict[str, Any] = {"size": 3, "is_slippery": False}
SIDE = 28 * LAKE["size"]  # of a picture, in pixels: a token of Qwen2.5-VL for each tile
LESSONS = 500_000  # first seed of the pictures in lessons: none of training, evaluation or demonstrations
TOLD = 200  # pictures of the evaluation that ask what lessons taught
_MEAN_OF = 15
NOISE = 0.4  # of the oracle that is imitated: it leaves something to learn


def config(folder: Path, seed: int, updates: int, **changes: Any) -> StarPOSConfig:
    """One action a turn, at most five; pictures in which a tile is a token."""
    options: dict[str, Any] = {
        "observation": "image",
        "image_size": SIDE,
        "env_kwargs": LAKE,
        "think": False,
        "max_turns": 5,
        "max_actions": 5,
        "max_actions_per_turn": 1,
        "max_reply_length": 8,
        "max_completion_length": 600,
        "num_generations": 8,
        "per_device_train_batch_size": 16,
        "gradient_accumulation_steps": 4,
        "learning_rate": 3e-4,
        "max_steps": updates,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "seed": seed,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
    }
    return StarPOSConfig(output_dir=str(folder), **{**options, **changes})


def lakes(seeds: Iterable[int]) -> Iterator[str]:
    """The maps of start states, the player's place among them."""
    env = gymnasium.make(ENV, **LAKE)
    for seed in seeds:
        yield env.reset(seed=seed)[0]


def apart(first: int, wanted: int, held: Collection[str]) -> list[int]:
    """So many seeds from the first on whose lakes are not held out."""
    found = (seed for seed, lake in zip(count(first), lakes(count(first)), strict=True) if lake not in held)
    return list(islice(found, wanted))


def measured(policy: Policy, args: StarPOSConfig, text: StarPOSConfig, episodes: int) -> dict[str, Any]:
    """The model on its own messages, on those of lakes that training never began at, and one that sees on wrong ones.

    ``text`` shows the map as text, which a model that sees was not trained on.
    """
    batch = args.per_device_train_batch_size * args.gradient_accumulation_steps
    groups = args.max_steps * batch // args.num_generations
    begun = set(lakes(args.train_seed_start + drawn for drawn in range(groups)))
    played = play_held_out(policy, ENV, args, episodes)
    unseen = [lake not in begun for lake in lakes(evaluation_seeds(episodes))]
    found = {
        "own": summarise(played).as_dict(),
        "unseen": summarise([one for one, new in zip(played, unseen, strict=True) if new]).as_dict(),
    }
    if args.observation == "image":
        found |= {kind: evaluate(policy, ENV, args, episodes, pictures=kind).as_dict() for kind in ("blank", "other")}
        found["text"] = evaluate(policy, ENV, text, episodes).as_dict()
    return found


def teach(
    model: PreTrainedModel,
    processor: PictureProcessor,
    tokenizer: PreTrainedTokenizerBase,
    seed: int,
    drawn: Sequence[int],
    told: Sequence[int],
    steps: int,
) -> dict[str, Any]:
    """Lessons on where things are, then on that and on moves, twice as often; and what was learnt of the first."""
    asked = lessons(ENV, LAKE, SIDE, processor, tokenizer, told)
    places = lessons(ENV, LAKE, SIDE, processor, tokenizer, drawn)
    moves = lessons(ENV, LAKE, SIDE, processor, tokenizer, drawn, NOISE)
    losses = imitate(model, places, processor, steps, batch_size=32, seed=seed)
    imitate(model, [*places, *moves, *moves], processor, steps, batch_size=32, seed=seed)
    right = {
        kind: places_right(model, asked, processor, tokenizer, is_blank=kind == "blank") for kind in ("own", "blank")
    }
    return {"lesson_loss": float(np.mean(losses[-50:])), "places_right": right}


def learn(folder: Path, seed: int, observation: str, smoke: bool) -> dict[str, Any]:
    """Teach, warm-start and train a model on pictures, or, without lessons, a text model; both stages are measured."""
    updates, episodes = (2, 8) if smoke else (300, 256)
    drawn, lesson_steps = (24, 2) if smoke else (1500, 900)
    demonstrations, steps = (8, 2) if smoke else (512, 400)
    began = time.perf_counter()
    text = config(folder, seed, updates, observation="text", image_size=StarPOSConfig.image_size)
    # The last one is the trainer's: a configuration resets the state of Accelerate.
    args = text if observation == "text" else config(folder, seed, updates)
    tokenizer = build_tiny_vision_tokenizer()
    model = build_tiny_vision_model(tokenizer, seed)
    processor, _ = load_processor(model, model.config, tokenizer, {})
    if observation == "text":
        model = build_tiny_model(tokenizer, seed, hidden_size=64, num_layers=2)
    trainer = StarPOTrainer(model, ENV, args, processing_class=tokenizer)
    held = set(lakes(evaluation_seeds(episodes)))

    def script(turns: TurnEnv, random: np.random.Generator) -> str:
        assert isinstance(turns, AgentTurns)
        return turns.format_reply(demonstration(turns, turns.actions_left, 1, random, NOISE))

    found: dict[str, Any] = {}
    if observation == "image":
        seeds = apart(LESSONS, drawn, held)
        found = teach(model, processor, tokenizer, seed, seeds, evaluation_seeds(min(TOLD, episodes)), lesson_steps)
    seeds = apart(WARM_START, demonstrations, held)
    shown = demonstrated(ScriptedPolicy(script, trainer.chat), EnvSpec(ENV, LAKE), args, trainer.chat, seeds)
    losses = imitate(model, shown, processor, steps, seed=seed)
    found["imitation_loss"] = float(np.mean(losses[-50:]))
    found["warm_start"] = measured(trainer.policy(), args, text, episodes)
    trainer.train()
    found["curve"] = [row["success"] for row in trainer.state.log_history if "success" in row]
    found["trained"] = measured(trainer.policy(), args, text, episodes)
    found |= {name: evaluate(name, ENV, args, episodes).as_dict() for name in ("random", "oracle")}
    return {**found, "minutes": (time.perf_counter() - began) / 60}


def draw(runs: Sequence[dict[str, Any]], path: Path) -> None:
    """Success of training rollouts, and before and after on the held-out start states with each kind of picture."""
    kinds = {"own": ("its pictures", "#0072b2"), "blank": ("blank", "#999999"), "other": ("other episodes'", "#d55e00")}
    with figure(path, (6.4, 3.4), dpi=100) as drawn:
        axes = drawn.add_subplot()
        last = len(runs[0]["curve"])
        for run in runs:
            means = np.convolve(run["curve"], np.full(_MEAN_OF, 1 / _MEAN_OF), "valid")
            axes.plot(np.arange(len(means)) + _MEAN_OF, means, color="#56b4e9", linewidth=1)
            for shift, (kind, (label, colour)) in enumerate(kinds.items()):
                ends = [run[when][kind]["success"] for when in ("warm_start", "trained")]
                once = label if run is runs[0] else None
                axes.plot([shift - 3, last + 1 + shift], ends, "o", color=colour, markersize=4, label=once)
        for policy in ("random", "oracle"):
            axes.axhline(runs[0][policy]["success"], color="#777777", linewidth=0.8, linestyle=":")
            axes.annotate(policy, (last / 2, runs[0][policy]["success"]), va="bottom", ha="center", color="#777777")
        axes.set(xlabel=f"update; lines are training rollouts, means of {_MEAN_OF}", ylabel="success", ylim=(0, 1.06))
        axes.set_title("A model that sees only pictures of FrozenLake, 3 × 3", loc="left")
        axes.legend(title="held out, shown", loc="lower center", ncols=3, frameon=False)


def joined(earlier: Mapping[str, Any], found: Mapping[str, Any], where: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The runs of all seeds, each with where it comes from; a seed that was run again is replaced.

    Args:
        earlier: The results as they were; runs of before each had its own command, commit and machine have theirs.
        found: The new run.
        where: Its command, commit and machine.
    """
    of_all = {name: earlier[name] for name in where if name in earlier}
    rows = [{**of_all, **row} for row in earlier["runs"] if row["seed"] != found["seed"]]
    return sorted([*rows, {**where, **found}], key=lambda row: int(row["seed"]))


def main() -> int:
    """Run one seed and add it to the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("runs/pictures"))
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "pictures.json")
    options = parser.parse_args()
    found = {"seed": options.seed, **learn(options.folder / "image", options.seed, "image", options.smoke)}
    found["on_text"] = learn(options.folder / "text", options.seed, "text", options.smoke)
    for kind in found["trained"]:
        print(f"{kind:6} {found['warm_start'][kind]['success']:.3f} → {found['trained'][kind]['success']:.3f}")
    print(
        f"random {found['random']['success']:.3f}, oracle {found['oracle']['success']:.3f}, {found['minutes']:.1f} min"
    )
    if options.smoke:
        return 0
    known = json.loads(options.output.read_text(encoding="utf-8")) if options.output.is_file() else {"runs": []}
    where = {**provenance(), "command": f"python benchmarks/pictures.py --seed {options.seed}"}
    runs = joined(known, found, where)
    write_atomically(options.output, json.dumps({**where, "env_kwargs": LAKE, "runs": runs}, indent=1) + "\n")
    draw(runs, options.output.with_suffix(".png"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
