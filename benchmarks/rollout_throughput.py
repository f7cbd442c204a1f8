"""How many trajectories a second does sampling give, next to TRL's own loop and to the first code one would write?

    python benchmarks/rollout_throughput.py            # some minutes on a CPU
    python benchmarks/rollout_throughput.py --smoke    # one short round, written to runs/ only
    python benchmarks/rollout_throughput.py --gpu      # only on a GPU: a model of the size of Qwen2.5-0.5B in bf16
    python benchmarks/rollout_throughput.py --model models/SmolLM2-135M-Instruct   # how fast it reads and decodes

All play the same model, environments, start states, turns and tokens a turn (``measuring/rollout_candidates.py``).
`ours` keeps the KV cache between turns. `generate` calls ``model.generate`` on the whole history in every turn, in our
loop, so that only generation differs. `trl` is ``GRPOTrainer(environment_factory=…)`` from its first token to its last,
without its resets and scores. They take turns in every round, and ratios are taken within rounds. Writes
``results/rollout_throughput.json``; the part of the other kind of machine stays.

On a CPU, seconds are CPU time of the process, which has one thread: what a rollout takes on a core of its own.
"""

import argparse
import functools
import json
import os
import statistics
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import gymnasium
import torch
from measuring.rollout_candidates import (
    Endless,
    FullHistory,
    Metronome,
    PassTimes,
    Steady,
    kept_cache,
    seeds_that_last,
    timed_play,
    tool_loop,
)
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from ragen_envs import AgentTurns
from ragen_trl.policies import transformers as transformers_policy
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance
from ragen_trl.trajectory import Trajectory

RESULT = Path(__file__).parent / "results" / "rollout_throughput.json"
BANDWIDTH = 4.3e12  # bytes a second that an H200 reads from its memory, of 4.8e12 on paper
LAKE = ("ragen/FrozenLake-v0", {"is_slippery": False, "frozen_prob": 0.9}, ("Up", "Down"))
SHOP = ("ragen/WebShop-v0", {"catalog": "synthetic:200"}, ("search[shirt]", "click[next >]", "click[back to search]"))
Rollout = Callable[[], float]


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=16, help="of every reply")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--model", type=Path, help="folder of a pretrained model, to read and to decode with on a CPU")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, help="default: the committed result, or a file in runs/ with --smoke")
    options = parser.parse_args()
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    if options.smoke:
        options.rounds, options.tokens = 1, 4
    kind, measure = ("gpu", on_gpu) if options.gpu else ("pretrained", pretrained) if options.model else ("cpu", on_cpu)
    measured = measure(options)
    given = " --gpu" * options.gpu or f" --model {options.model}" * bool(options.model)
    command = f"python benchmarks/rollout_throughput.py{given}"
    smoke, whole = Path("runs/benchmark-rollout-throughput-smoke.json"), RESULT
    output = options.output or (smoke if options.smoke else whole)
    kept = json.loads(output.read_text(encoding="utf-8")) if output.exists() else {"cpu": None, "gpu": None}
    kept[kind] = {**provenance(), "command": command, "model_seed": 0, "tokens": options.tokens, **measured}
    write_atomically(output, json.dumps(kept, indent=1))
    print(f"written: {output}")
    return 0


def on_cpu(options: argparse.Namespace) -> dict[str, Any]:
    """The embedded model in two games, and what a turn costs late in a long conversation."""
    torch.set_num_threads(1)
    games = {}
    for (env, kwargs, script), count in ((LAKE, 64), (SHOP, 16)):
        tokenizer = build_tiny_tokenizer(env=None if options.smoke else env)  # one that knows the words of the store
        model = build_tiny_model(tokenizer)
        model.config.max_position_embeddings = 16_384  # pages are long for one that does not
        make = functools.partial(turns_of, env, kwargs, options.turns)
        games[env] = compare(model, tokenizer, make, script, 8 if options.smoke else count, options)
        report(env, games[env])
    return {"games": games, "turn_cost": turn_costs(model, tokenizer, options)}


def pretrained(options: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second that a pretrained model reads and decodes: beginnings read once or not, and in bfloat16."""
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.float32).eval()
    chat = Endless(AutoTokenizer.from_pretrained(options.model), reply_prefix="<answer>")
    env, kwargs, script = LAKE
    make = functools.partial(turns_of, env, kwargs, options.turns)
    count, group = (4, 2) if options.smoke else (64, 8)
    seeds = [seed for seed in seeds_that_last(make, script, options.turns, count // group) for _ in range(group)]
    envs = [Steady(make(), script) for _ in seeds]
    rounds: dict[str, list[dict[str, float]]] = {"shared": [], "apart": [], "bfloat16": []}
    for _ in range(options.rounds):
        for name, found in rounds.items():
            apart = mock.patch.object(transformers_policy, "common_beginnings", lambda *_: [])
            half = functools.partial(torch.autocast, "cpu", torch.bfloat16, enabled=name == "bfloat16")
            with PassTimes(model) as times, apart if name == "apart" else nullcontext():
                seconds, played = timed_play(envs, kept_cache(model, chat, options.tokens, half), seeds)
            shown = sum(len(turn.prompt_ids) for row in played for turn in row.turns)
            sampled = sum(row.num_reply_tokens for row in played)
            found.append({"seconds": seconds, "shown": shown, "sampled": sampled, **times.found})
            rates = (
                f"shown {shown / times.found['reading']:.0f} tokens/s, sampled {sampled / times.found['decoding']:.0f}"
            )
            print(f"{name:7} {seconds:7.1f} s, {rates}", flush=True)
    return {"trajectories": count, "group_size": group, "turns": options.turns, "rounds": rounds}


def turns_of(env: str, kwargs: dict[str, Any], turns: int) -> AgentTurns:
    """An environment that takes whole replies, so many and no more."""
    made = gymnasium.make(env, disable_env_checker=True, **kwargs)
    return AgentTurns(made, max_turns=turns, max_actions_per_turn=1, max_actions=turns + 1, think=False)


def compare(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    make: Callable[[], AgentTurns],
    script: Sequence[str],
    count: int,
    options: argparse.Namespace,
    group_size: int = 8,
) -> dict[str, Any]:
    """Seconds of every round of every way to sample, and what was sampled."""
    states = seeds_that_last(make, script, options.turns, -(-count // group_size))
    seeds = [state for state in states for _ in range(group_size)][:count]
    envs = [Steady(make(), script) for _ in seeds]
    played: dict[str, list[Trajectory]] = {}
    trl = tool_loop(model, tokenizer, envs, options.turns, options.tokens)
    chat = Endless(tokenizer, reply_prefix="<answer>")

    def play_with(name: str, policy: Callable[..., Any]) -> float:
        for env in envs:
            env.seconds = 0.0
        seconds, played[name] = timed_play(envs, policy(model, chat, options.tokens), seeds)
        return seconds

    ways = {
        "ours": lambda: play_with("ours", kept_cache),
        "generate": lambda: play_with("generate", FullHistory),
        "trl": lambda: trl.sample(seeds),
    }
    for way in ways.values():
        way()  # warms up
    shares = []
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for name, way in ways.items():
            rounds[name].append(way())
            if name == "ours":
                shares.append(sum(env.seconds for env in envs) / rounds[name][-1])
    sampled = {name: sum(row.num_reply_tokens for row in rows) for name, rows in played.items()}
    sampled["trl"] = sum(map(sum, trl.sampled[2]))  # its mask of sampled tokens
    lengths = {name: statistics.mean(len(row.token_ids) for row in rows) for name, rows in played.items()}
    lengths["trl"] = statistics.mean(map(len, trl.sampled[0])) + statistics.mean(map(len, trl.sampled[1]))
    first = {"trajectories": count, "group_size": group_size, "turns": options.turns, "seeds": states}
    return {**first, "sampled": sampled, "length": lengths, "env_share": statistics.median(shares), "rounds": rounds}


def turn_costs(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, options: argparse.Namespace
) -> dict[str, Any]:
    """Seconds of 10 and of 20 turns, every one with an observation of the same length."""
    count, tokens, lengths = (2, 2, (2, 4)) if options.smoke else (16, 8, (10, 20))
    chat = Endless(tokenizer)
    message = "abcdefgh " * 5
    rounds: dict[str, dict[int, list[float]]] = {}
    for _ in range(options.rounds):
        for name, policy in (("ours", kept_cache), ("generate", FullHistory)):
            for turns in lengths:
                envs = [Metronome(turns, message) for _ in range(count)]
                seconds, _ = timed_play(envs, policy(model, chat, tokens), range(count))
                rounds.setdefault(name, {}).setdefault(turns, []).append(seconds)
    for name, by_turns in rounds.items():
        short, long = by_turns.values()
        print(f"{name}: {lengths[1]} turns cost {median_ratio(long, short):.2f} times {lengths[0]} turns")
    added = len(chat.extend(0, message))
    return {"trajectories": count, "tokens": tokens, "tokens_added_a_turn": added, "rounds": rounds}


def on_gpu(options: argparse.Namespace) -> dict[str, Any]:
    """128 trajectories of a random model of the shape of Qwen2.5-0.5B, and what memory allows at best."""
    if not torch.cuda.is_available() and not options.smoke:
        raise SystemExit("--gpu measures a GPU and there is none; --gpu --smoke tries the code on the CPU")
    tokenizer = build_tiny_tokenizer()
    count, device = (128, "cuda") if not options.smoke else (8, "cpu")
    options.tokens = 4 if options.smoke else 100
    sizes: dict[str, Any] = {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
    sizes |= {"num_attention_heads": 14, "num_key_value_heads": 2, "vocab_size": 151_936}
    if options.smoke:
        sizes |= {"hidden_size": 28, "intermediate_size": 32, "num_hidden_layers": 2, "vocab_size": len(tokenizer)}
    config = Qwen2Config(
        **sizes, tie_word_embeddings=True, bos_token_id=None, eos_token_id=tokenizer.eos_token_id, pad_token_id=0
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config).to(device, torch.bfloat16).eval()
    env, kwargs, script = LAKE
    game = compare(model, tokenizer, functools.partial(turns_of, env, kwargs, options.turns), script, count, options)
    bound = bandwidth_bound(model, game)
    report(env, game)
    print(bound["arithmetic"])
    return {"games": {env: game}, "bound": bound}


def bandwidth_bound(model: PreTrainedModel, game: dict[str, Any]) -> dict[str, Any]:
    """Seconds that reading weights and caches once a decoding step takes, and nothing else."""
    config = model.config
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    width = config.num_key_value_heads * (config.hidden_size // config.num_attention_heads)
    entry = 2 * config.num_hidden_layers * width * next(model.parameters()).element_size()  # keys and values of a token
    steps = game["sampled"]["ours"] // game["trajectories"]
    cache = entry * game["trajectories"] * game["length"]["ours"] / 2  # a context is half full on average
    seconds = steps * (weights + cache) / BANDWIDTH
    tokens, ours = game["sampled"]["ours"], statistics.median(game["rounds"]["ours"])
    megabytes = f"({weights / 1e6:,.1f} MB weights + {cache / 1e6:,.1f} MB cache)"
    arithmetic = (
        f"{steps} steps x {megabytes} / {BANDWIDTH / 1e12:.1f} TB/s = {seconds:.4f} s: {tokens / seconds:,.0f} "
        f"tokens/s at best; ours {tokens / ours:,.0f}"
    )
    return {"weights": weights, "cache": cache, "steps": steps, "seconds": seconds, "arithmetic": arithmetic}


def report(env: str, game: dict[str, Any]) -> None:
    """Print rates and ratios."""
    rounds = game["rounds"]
    for name, seconds in rounds.items():
        rate, ratio = game["trajectories"] / statistics.median(seconds), median_ratio(seconds, rounds["ours"])
        print(f"{env} {name:8} {rate:8.1f} trajectories/s, ours is {ratio:.2f} times as fast", flush=True)
    print(f"{env} sampled {game['sampled']}, length {game['length']}, environment {game['env_share']:.1%} of ours")


def median_ratio(above: Sequence[float], below: Sequence[float]) -> float:
    """Median of the rounds' ratios."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


if __name__ == "__main__":
    sys.exit(main())
