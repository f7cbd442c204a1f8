"""How hard are the text adventures, and how fast next to the package that makes them?

    python benchmarks/text_worlds.py           # ten minutes or so, and some seconds for each game that is not there yet
    python benchmarks/text_worlds.py --smoke   # a few episodes, written to runs/ only

It needs ``ragen-trl[textworld]``. The random policy and the oracle play 1,000 episodes of each size, in the default
games. Speed is that of random play over admissible commands in the games of one size, resets included: TextWorld's own
interpreter with the same information asked for, our environment that has seen nothing yet, and our environment on ways
that it has played before. They take turns, the clock is that of CPU time, and the ratio is that of each round. Writes
``results/text_worlds.json``.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring.processes import median_and_rounds
from records.results import write_result

from ragen_envs import TextWorld
from ragen_envs.baselines import measure
from ragen_envs.textworld.games import game_file, user_cache
from ragen_envs.textworld.scenes import scene

HERE = Path(__file__).parent
ENV = "ragen/TextWorld-v0"
SIZES = {"w1-o2-q2": 16, "w2-o3-q4": 16, "w4-o6-q8": 16}  # and the number of games
TIMED, LIMIT = "w2-o3-q4", 20
Play = Callable[[random.Random], int]


def main() -> int:
    """Play all, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--per_round", type=int, default=20, help="episodes of each way of playing in a round")
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "text_worlds.json")
    options = parser.parse_args()
    if find_spec("textworld") is None:
        print("left out: the package textworld is not installed; pip install 'ragen-trl[textworld]'")
        return 0
    games = dict(SIZES)
    if options.smoke:
        options.episodes, options.rounds, options.per_round, options.sizes = 4, 2, 1, ["w1-o2-q2"]
        games = dict.fromkeys(SIZES, 1)
        options.output = Path("runs/benchmark-text-worlds-smoke.json")
    rows = []
    for size in options.sizes:
        for policy in ("random", "oracle"):
            kwargs = {"size": size, "games": games[size]}
            rows.append(measure(ENV, policy, episodes=options.episodes, env_kwargs=kwargs).as_dict())
            found = rows[-1]
            print(f"{size} {policy:6} {found['success']:.3f} [{found['low']:.3f}, {found['high']:.3f}]", flush=True)
    timed = options.sizes[0] if options.smoke else TIMED
    rates = speeds(timed, games[timed], options.rounds, options.per_round)
    command = f"python benchmarks/text_worlds.py --sizes {' '.join(options.sizes)}"
    for name, found in rates.items():
        print(f"{name:22} {found['median']:>10,.0f} steps a CPU second")
    write_result(options.output, command, rows=rows, timed=timed, speed=rates)
    return 0


def speeds(size: str, games: int, rounds: int, episodes: int) -> dict[str, Any]:
    """Steps a second of CPU time of each way of playing, in rounds in which they take turns."""
    env = TextWorld(size=size, games=games)
    peers = [_interpreter(str(game_file(size, number, user_cache()))) for number in range(games)]
    ways: dict[str, Play] = {
        "textworld": lambda rng: peer_episode(rng.choice(peers), rng),
        "ours, first time": lambda rng: our_episode(env, rng),
        "ours, again": lambda rng: our_episode(env, rng),
    }
    measured: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds):
        for name, play in ways.items():
            if name == "ours, first time":
                scene.cache_clear()
            rng, began = random.Random(number), time.process_time()
            steps = sum(play(rng) for _ in range(episodes))
            measured[name].append(steps / (time.process_time() - began))
    return {name: median_and_rounds(found) for name, found in measured.items()}


def _interpreter(path: str) -> Any:
    """A game of TextWorld's, asked for what our environment asks for."""
    import textworld

    asked = {"admissible_commands": True, "policy_commands": True, "objective": True, "won": True, "lost": True}
    return textworld.start(path, textworld.EnvInfos(**asked))


def peer_episode(game: Any, rng: random.Random) -> int:
    """Steps of one episode of TextWorld's own."""
    answer = game.reset()
    for step in range(1, LIMIT + 1):
        answer, _, over = game.step(rng.choice(answer.admissible_commands))
        if over:
            return step
    return LIMIT


def our_episode(env: TextWorld, rng: random.Random) -> int:
    """Steps of one episode of ours."""
    env.reset(seed=rng.randrange(2**31))
    for step in range(1, LIMIT + 1):
        if env.step(rng.choice(env.scene.commands))[2]:
            return step
    return LIMIT


if __name__ == "__main__":
    sys.exit(main())
