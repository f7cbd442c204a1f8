"""How fast do the environments step and reset on one core, next to gym-sokoban (RAGEN's), GEM and Gymnasium?

    python benchmarks/env_throughput.py [--install] [--smoke]

Peers want old packages, so each has a virtual environment under ``runs/``, which ``--install`` makes; one that is
missing is skipped. Every workload is random play in a process of its own, on one core; rounds take turns.
"""

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PEERS = {"gym-sokoban": ["gym-sokoban==0.0.6", "numpy<2"], "gem": ["gem-llm==0.1.0"]}
ROOM = {"dim_room": (6, 6), "num_boxes": 1}
MOVES = ("Up", "Down", "Left", "Right")
NUM_ENVS = 64
Count = tuple[int, float]


def main() -> None:
    """Run all rounds and write medians; a peer's Python runs this file with ``--workload`` and nothing else."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each workload in each round")
    parser.add_argument("--cpu", type=int, default=0, help="the core to run on")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workload", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.workload:
        return run(asked.workload, asked.seconds, asked.cpu)
    from record import answer_of, median_ratio, place, table, write

    if asked.smoke:
        asked.rounds, asked.seconds = 1, 0.02
    for peer in PEERS if asked.install else ():
        install(peer)
    missing = [peer for peer in PEERS if asked.smoke or not python_of(peer).exists()]
    names = [name for name in WORKLOADS if peer_of(name) not in missing]
    rates: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(asked.rounds):
        for name in names:
            words = ["--workload", name, "--seconds", str(asked.seconds), "--cpu", str(asked.cpu)]
            found = answer_of([str(python_of(peer_of(name))), __file__, *words])
            rates[name].append(found["count"] / found["seconds"])
    rows = []
    for name in (name for name in names if peer_of(name) is None and not name.startswith("gymnasium")):
        game = name.replace(", unwrapped", "").replace(", as made", "")
        peers = [f"{peer} {game}" for peer in (*PEERS, "gymnasium")]
        cells = [f"{sorted(rates[name])[asked.rounds // 2]:,.0f}"]
        for peer in peers:
            known = peer in rates
            median = sorted(rates[peer])[asked.rounds // 2] if known else 0
            cells.append(f"{median:,.0f} (ours {median_ratio(rates[name], rates[peer]):,.1f} ×)" if known else "")
        rows.append([name, *cells])
    note = f"Medians of {asked.rounds} rounds that took turns; ratios are medians of the rounds' ratios."
    shown = table(["on one core, per second", "ours", "gym-sokoban", "GEM", "Gymnasium"], rows, note)
    command = "python benchmarks/env_throughput.py --install"
    write(place("env_throughput", asked.smoke, asked.out), command, skipped=missing, rates=rates, table=shown)


def peer_of(workload: str) -> str | None:
    """Whose workload it is; None for what runs here, Gymnasium's own environments included."""
    return next((peer for peer in PEERS if workload.startswith(peer)), None)


def python_of(peer: str | None) -> Path:
    """The interpreter that a workload runs with."""
    return Path(sys.executable) if peer is None else Path("runs") / f"peer-{peer}" / "bin" / "python"


def install(peer: str) -> None:
    """Make a peer's virtual environment, unless it is there, and install its packages."""
    python = python_of(peer)
    if not python.exists():
        venv.create(python.parent.parent, with_pip=True)
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", *PEERS[peer]], check=True)


def run(workload: str, seconds: float, cpu: int) -> None:
    """Run one workload on one core and print how much it did in how many seconds, as JSON."""
    if hasattr(os, "sched_setaffinity"):  # Linux only
        os.sched_setaffinity(0, {cpu})
    function, arguments = WORKLOADS[workload]
    count, spent = function(seconds, *arguments)
    print(json.dumps({"count": count, "seconds": spent}))


def random_actions(actions: Sequence[Any]) -> list[Any]:
    """Enough of them to repeat unnoticed."""
    return random.Random(0).choices(actions, k=9973)


def time_steps(seconds: float, reset: Callable[[], Any], step: Callable[[Any], bool], actions: Sequence[Any]) -> Count:
    """Steps of random play; resets are not timed. ``step`` says whether the episode is over."""
    count, spent = 0, 0.0
    forever = itertools.cycle(random_actions(actions))
    while spent < seconds:
        reset()
        before = time.perf_counter()
        for action in itertools.islice(forever, 1000):
            count += 1
            if step(action):
                break
        spent += time.perf_counter() - before
    return count, spent


def time_calls(seconds: float, call: Callable[[], Any], counts: int = 1) -> Count:
    """Calls, each of which counts for so many."""
    call()
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        call()
        count += counts
    return count, time.perf_counter() - start


def our_steps(seconds: float, env_id: str, unwrapped: bool) -> Count:
    """Text steps of an environment of ours."""
    import gymnasium

    import ragen_envs  # noqa: F401  (registers the ids)

    env = gymnasium.make(env_id)
    env = env.unwrapped if unwrapped else env
    env.reset(seed=0)
    return time_steps(seconds, env.reset, lambda action: any(env.step(action)[2:4]), MOVES)


def our_shop(seconds: float) -> Count:
    """Steps of random play in a shop of 1,000 generated products, in the same process."""
    import gymnasium
    import numpy as np

    import ragen_envs  # noqa: F401
    from ragen_envs.webshop.shoppers import random_shop_action

    env = gymnasium.make("ragen/WebShop-v0", catalog="synthetic:1000")
    env.reset(seed=0)
    count, spent, rng = 0, 0.0, np.random.default_rng(0)
    while spent < seconds:
        env.reset()
        over = False
        while not over:
            action = random_shop_action(env.unwrapped, rng)
            before = time.perf_counter()
            over = any(env.step(action)[2:4])
            spent += time.perf_counter() - before
            count += 1
    return count, spent


def our_resets(seconds: float, env_id: str) -> Count:
    """Resets, each with a fresh start state."""
    import gymnasium

    import ragen_envs  # noqa: F401

    env = gymnasium.make(env_id)
    env.reset(seed=0)
    return time_calls(seconds, env.reset)


def our_vector(seconds: float, env_id: str) -> Count:
    """Steps of single environments in a vector, automatic resets included."""
    import gymnasium

    import ragen_envs  # noqa: F401

    envs = gymnasium.make_vec(env_id, num_envs=NUM_ENVS)
    envs.reset(seed=0)
    rounds = itertools.cycle([tuple(random_actions(MOVES)[k : k + NUM_ENVS]) for k in range(0, 9000, NUM_ENVS)])
    return time_calls(seconds, lambda: envs.step(next(rounds)), NUM_ENVS)


def our_tool_calls(seconds: float) -> Count:
    """Random calls of tools, at most ten an episode: known tools, arguments of the right kind."""
    import gymnasium
    import numpy as np

    import ragen_envs  # noqa: F401

    env = gymnasium.make(TOOLS, max_episode_steps=10)
    tools: Any = env.unwrapped
    env.reset(seed=0)
    rng, count, spent = np.random.default_rng(0), 0, 0.0
    while spent < seconds:
        env.reset()
        over = False
        while not over:
            call = tools.random_action(rng)
            before = time.perf_counter()
            over = any(env.step(call)[2:4])
            count, spent = count + 1, spent + time.perf_counter() - before
    return count, spent


def gym_sokoban(seconds: float, what: str) -> Count:
    """gym-sokoban, whose step draws a picture; RAGEN's Sokoban is a subclass that calls it."""
    from gym_sokoban.envs.sokoban_env import SokobanEnv

    random.seed(0)
    env = SokobanEnv(**ROOM, max_steps=100, reset=False)

    def reset() -> None:
        while True:
            try:
                env.reset()
                return
            except (RuntimeError, RuntimeWarning):  # its way of saying that a room came to nothing
                continue

    reset()
    if what == "resets":
        return time_calls(seconds, reset)
    return time_steps(seconds, reset, lambda action: env.step(action)[2], (1, 2, 3, 4))


def gem_sokoban(seconds: float, what: str) -> Count:
    """GEM's text Sokoban, alone or in its synchronous vector."""
    from gem.envs.game_env.sokoban import SokobanEnv
    from gem.vector.sync_vector_env import SyncVectorEnv

    moves = [f"\\boxed{{{move.lower()}}}" for move in MOVES]

    def make() -> Any:
        return SokobanEnv(**ROOM, max_turns=100)

    if what == "vector":
        envs = SyncVectorEnv(["sokoban"] * NUM_ENVS, [make] * NUM_ENVS)
        envs.reset(seed=0)
        rounds = itertools.cycle([random_actions(moves)[k : k + NUM_ENVS] for k in range(0, 9000, NUM_ENVS)])
        return time_calls(seconds, lambda: envs.step(next(rounds)), NUM_ENVS)
    env = make()
    env.reset(seed=0)
    if what == "resets":
        return time_calls(seconds, env.reset)
    return time_steps(seconds, env.reset, lambda action: any(env.step(action)[2:4]), moves)


def gymnasium_lake(seconds: float, what: str) -> Count:
    """Gymnasium's FrozenLake with its text rendering; each reset builds a new one for a new map, as RAGEN does."""
    import gymnasium
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

    env = gymnasium.make("FrozenLake-v1", render_mode="ansi")

    def fresh() -> None:
        made = FrozenLakeEnv(render_mode="ansi", desc=generate_random_map(4, 0.8))
        made.reset()
        made.render()

    def step(action: int) -> bool:
        _, _, terminated, truncated, _ = env.step(action)
        env.render()
        return terminated or truncated

    return time_calls(seconds, fresh) if what == "resets" else time_steps(seconds, env.reset, step, range(4))


LAKE, SOKOBAN, TOOLS = "ragen/FrozenLake-v0", "ragen/Sokoban-v0", "ragen/Tools-v0"
WORKLOADS: dict[str, tuple[Callable[..., Count], tuple[Any, ...]]] = {
    "sokoban step, unwrapped": (our_steps, (SOKOBAN, True)),
    "sokoban step, as made": (our_steps, (SOKOBAN, False)),
    "sokoban reset": (our_resets, (SOKOBAN,)),
    "sokoban vector": (our_vector, (SOKOBAN,)),
    "large sokoban step, as made": (our_steps, ("ragen/SokobanLarge-v0", False)),
    "large sokoban reset": (our_resets, ("ragen/SokobanLarge-v0",)),
    "frozen lake step, unwrapped": (our_steps, (LAKE, True)),
    "frozen lake step, as made": (our_steps, (LAKE, False)),
    "frozen lake reset": (our_resets, (LAKE,)),
    "frozen lake vector": (our_vector, (LAKE,)),
    "tools step, as made": (our_tool_calls, ()),
    "tools reset": (our_resets, (TOOLS,)),
    "webshop step, as made": (our_shop, ()),
    "gym-sokoban step": (gym_sokoban, ("steps",)),
    "gym-sokoban reset": (gym_sokoban, ("resets",)),
    "gem sokoban step": (gem_sokoban, ("steps",)),
    "gem sokoban reset": (gem_sokoban, ("resets",)),
    "gem sokoban vector": (gem_sokoban, ("vector",)),
    "gymnasium frozen lake step": (gymnasium_lake, ("steps",)),
    "gymnasium frozen lake reset": (gymnasium_lake, ("resets",)),
}

if __name__ == "__main__":
    main()
