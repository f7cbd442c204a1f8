"""What do environments cost a rollout? Those that wait, side by side and one by one; those that compute, in threads.

    python benchmarks/rollout_stepping.py            # some minutes
    python benchmarks/rollout_stepping.py --smoke    # a few rows and tokens, written to runs/ only

*Waiting*: 64 environments that take 50 ms each, as a remote one does, under a policy that costs nothing.
*Computing*: the embedded model (random weights) plays each environment with its recipe. It samples as many tokens as a
reply of random actions has, and the environment gets that reply: both sides do the work of a real rollout. The share of
the environments is the time in which the rollout waits for their resets and steps, over the time of the rollout.

Rounds take turns. Writes ``results/rollout_stepping.json`` with all of them.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from measuring.processes import median_and_rounds
from records.results import write_result

from ragen_envs import AgentTurns, random_action
from ragen_trl import StarPOConfig
from ragen_trl.config.play import DEFAULT_WORKERS
from ragen_trl.config.recipes import defaults
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_executor import EnvExecutor, Failure
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start
from ragen_trl.rollout.loop import play

WAIT, WAITING = 0.05, 64
# Rows and, where the recipe's are more than the model's context holds, turns.
COMPUTING: dict[str, dict[str, Any]] = {
    "ragen/FrozenLake-v0": {"rows": 128},
    "ragen/Sokoban-v0": {"rows": 128},
    "ragen/WebShop-v0": {"rows": 16, "max_turns": 4},
}


class Remote:
    """An environment of some turns that takes its time for each."""

    def __init__(self, turns: int) -> None:
        self.turns, self.taken = turns, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin at once."""
        self.taken = 0
        return "start", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Wait, then answer."""
        time.sleep(WAIT)
        self.taken += 1
        return "next", 0.0, self.taken == self.turns, False, {}


class Timed(EnvExecutor):
    """Adds up the time that rollouts wait for it."""

    seconds = 0.0

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any | Failure]:
        """As `EnvExecutor.run`."""
        began = time.perf_counter()
        try:
            return super().run(calls)
        finally:
            self.seconds += time.perf_counter() - began


class Rehearsal(Policy):
    """Samples with a model, but plays random actions in as many tokens."""

    def __init__(self, model: TransformersPolicy, chat: Chat) -> None:
        self._model, self._chat = model, chat
        self.chat, self.max_context = model.chat, model.max_context
        self._random: list[np.random.Generator] = []

    def begin(self, seeds: Sequence[int]) -> None:
        """As the model, and a random generator for the actions of each row."""
        self._random = [np.random.default_rng(seed) for seed in seeds]
        self._model.begin(seeds)

    def end(self, rows: Sequence[int]) -> None:
        """As the model."""
        self._model.end(rows)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Tokens of the model, text of random actions."""
        texts = [self._text(request) for request in requests]
        lengths = [len(self._chat.encode_reply(text)) for text in texts]
        asked = [
            replace(request, room=min(length, length if request.room is None else request.room))
            for request, length in zip(requests, lengths, strict=True)
        ]
        return [replace(reply, text=text) for reply, text in zip(self._model.reply(asked), texts, strict=True)]

    def _text(self, request: Request) -> str:
        assert isinstance(request.env, AgentTurns)
        count, random = request.env.max_actions_per_turn, self._random[request.row]
        return request.env.format_reply([random_action(request.env, random) for _ in range(count)])


def main() -> None:
    """Measure both kinds and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "rollout_stepping.json")
    options = parser.parse_args()
    rows = None
    if options.smoke:
        options.rounds, rows, options.output = 1, 4, Path("runs/benchmark-rollout-stepping-smoke.json")
    waiting = measure_waiting(options.rounds, rows or WAITING)
    computing = [measure_computing(env, options.rounds, rows) for env in COMPUTING]
    command = f"python benchmarks/rollout_stepping.py --rounds {options.rounds}"
    for name, measured in waiting["seconds_a_turn"].items():
        print(f"{waiting['environments']} of {WAIT} s, {name}: {measured['median']:.3f} s a turn")
    for row in computing:
        for name, measured in row["share"].items():
            print(f"{row['env']}, {name}: {measured['median']:.1%} of {row['seconds'][name]['median']:.2f} s")
    write_result(options.output, command, seed=0, waiting=waiting, computing=computing)


def measure_waiting(rounds: int, count: int) -> dict[str, Any]:
    """Seconds a turn of environments that wait; one by one they need only one round."""
    policy = ScriptedPolicy(lambda env, random: "go")
    seconds: dict[str, list[float]] = {"side by side": [], "one by one": []}
    executor = EnvExecutor()
    for done in range(rounds):
        for name, turns, used in (("side by side", 10, executor), ("one by one", 1, EnvExecutor(0))):
            if name == "side by side" or done == 0:
                began = time.perf_counter()
                play([Remote(turns) for _ in range(count)], policy, [Start(row) for row in range(count)], None, used)
                seconds[name].append((time.perf_counter() - began) / turns)
    return {
        "environments": count,
        "wait": WAIT,
        "workers": DEFAULT_WORKERS,
        "seconds_a_turn": {name: median_and_rounds(values) for name, values in seconds.items()},
    }


def measure_computing(env: str, rounds: int, rows: int | None) -> dict[str, Any]:
    """Share of the environment in rollouts of the embedded model, with threads and without."""
    settings = dict(COMPUTING[env])
    count = rows or settings.pop("rows")
    settings.pop("rows", None)
    options = {"output_dir": "runs/unused", "use_cpu": True, **defaults(env, None), **settings}
    args = StarPOConfig(**options)
    tokenizer = build_tiny_tokenizer()
    envs = [make_turns(env, args) for _ in range(count)]
    chat = make_chat(tokenizer, envs[0], args)
    model = TransformersPolicy(build_tiny_model(tokenizer), chat, Sampling(args.max_reply_length))
    policy, starts = Rehearsal(model, chat), [Start.drawn(seed, (0, seed)) for seed in range(count)]
    executors = {"threads": Timed(), "no threads": Timed(0)}
    play(envs, policy, starts)  # opens the store, fills caches
    seconds: dict[str, list[float]] = {name: [] for name in executors}
    share: dict[str, list[float]] = {name: [] for name in executors}
    for _ in range(rounds):
        for name, executor in executors.items():
            executor.seconds, began = 0.0, time.perf_counter()
            played = play(envs, policy, starts, None, executor)
            seconds[name].append(time.perf_counter() - began)
            share[name].append(executor.seconds / seconds[name][-1])
    return {
        "env": env,
        "rows": count,
        "turns": sum(len(trajectory.turns) for trajectory in played) / count,
        "tokens": sum(len(trajectory.token_ids) for trajectory in played) / count,
        "reply_tokens": sum(trajectory.num_reply_tokens for trajectory in played) / count,
        "seconds": {name: median_and_rounds(values) for name, values in seconds.items()},
        "share": {name: median_and_rounds(values) for name, values in share.items()},
    }


if __name__ == "__main__":
    main()
