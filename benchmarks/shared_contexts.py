"""What does it save, while tokens are sampled, to compute equal contexts of a group's trajectories once?

    python benchmarks/shared_contexts.py            # some minutes on one core; wants `make smollm2`
    python benchmarks/shared_contexts.py --smoke    # the embedded model, some seconds, written to runs/ only

SmolLM2 as downloaded plays groups of trajectories, at temperatures below 1 as well: a model that has learnt samples
with less entropy, and its trajectories are equal for longer. The same seeds are played with and without sharing, in
turns; tokens are the same, except where rounding decides between two. Without sharing, what prompts begin with is still
read once. Seconds are CPU time of one thread. Writes ``results/shared_contexts.json``.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from records.results import write_result
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ragen_trl import StarPOConfig
from ragen_trl.config.recipes import ENVIRONMENTS
from ragen_trl.policies import shared_contexts
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.tiny_model import save_tiny_model
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory

HERE = Path(__file__).parent
SMOLLM2 = "models/SmolLM2-135M-Instruct"
GAMES = ("ragen/Bandit-v0", "ragen/FrozenLake-v0")


@dataclass(frozen=True)
class Case:
    """What is played.

    Attributes:
        env: Gymnasium id; turns and actions are those of the recipe.
        groups: Start states.
        size: Trajectories of each.
        temperature: Of the sampling.
    """

    env: str
    groups: int
    size: int
    temperature: float


CASES = [
    *(Case(GAMES[0], 2, 32, temperature) for temperature in (1.0, 0.5, 0.2)),
    *(Case(GAMES[1], 2, 8, temperature) for temperature in (1.0, 0.5, 0.2)),
]


def main() -> None:
    """Play every case with and without sharing, in turns, and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default=SMOLLM2, help=f"folder of the pretrained model (default: {SMOLLM2})")
    options = parser.parse_args()
    output = HERE / "results" / "shared_contexts.json"
    cases, rounds, folder = CASES, options.rounds, options.model
    if options.smoke:
        cases, rounds, output = [Case(GAMES[0], 1, 4, 1.0)], 1, Path("runs/benchmark-shared-contexts-smoke.json")
        folder = str(save_tiny_model("runs/benchmark-shared-contexts-model"))
    elif not Path(folder).is_dir():
        parser.error(f"there is no {folder}; `make smollm2` makes it, --model names another folder")
    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    rows = []
    for case in cases:
        rows.append({"case": asdict(case), **compared(case, model, folder, rounds)})
        print(rows[-1], flush=True)
    command = f"python benchmarks/shared_contexts.py --rounds {rounds}"
    write_result(output, command, model=Path(folder).name, rounds=rounds, rows=rows)


def compared(case: Case, model: PreTrainedModel, folder: str, rounds: int) -> dict[str, Any]:
    """Medians over the rounds; the ratio is the median of the rounds' ratios.

    ``equal`` are the trajectories that have the same tokens with and without sharing: sums in passes of another shape
    are rounded otherwise, which now and then turns a draw.
    """
    seconds: dict[str, list[float]] = {"apart": [], "shared": []}
    computed: dict[str, int] = {}
    played(replace(case, groups=1, size=2), model, folder, shares=True)  # warms up
    for number in range(rounds):
        tokens = {}
        for name in ("apart", "shared") if number % 2 else ("shared", "apart"):
            spent, computed[name], episodes = played(case, model, folder, shares=name == "shared")
            seconds[name].append(spent)
            tokens[name] = [episode.token_ids for episode in episodes]
    ratios = [shared / apart for apart, shared in zip(*seconds.values(), strict=True)]
    logprobs = [logprob for episode in episodes for turn in episode.turns for logprob in turn.logprobs]
    return {
        "different": len(set(tokens["shared"])),
        "equal": sum(one == other for one, other in zip(*tokens.values(), strict=True)),
        "nats_a_token": -statistics.fmean(logprobs),
        **{f"{name}_seconds": statistics.median(values) for name, values in seconds.items()},
        **{f"{name}_tokens": count for name, count in computed.items()},
        "ratio": statistics.median(ratios),
        "ratios": ratios,
    }


def played(case: Case, model: PreTrainedModel, folder: str, shares: bool) -> tuple[float, int, list[Trajectory]]:
    """CPU seconds of a rollout, how many tokens its passes computed, and its trajectories."""
    settings = {**ENVIRONMENTS[case.env], "think": False, "max_reply_length": 24, "max_completion_length": 1024}
    with tempfile.TemporaryDirectory() as output:
        args = StarPOConfig(output_dir=output, use_cpu=True, bf16=False, report_to="none", **settings)
    turns = [make_turns(case.env, args) for _ in range(case.groups * case.size)]
    chat = make_chat(AutoTokenizer.from_pretrained(folder), turns[0], args)
    policy = TransformersPolicy(model, chat, Sampling(args.max_reply_length, case.temperature))
    starts = [Start(number // case.size, number, number) for number in range(len(turns))]
    with counted(model) as passes, patch.object(shared_contexts, "alike", shared_contexts.alike if shares else by_row):
        began = time.process_time()
        episodes = play(turns, policy, starts)
        return time.process_time() - began, sum(passes), episodes


def by_row(rows: Sequence[shared_contexts.Row]) -> list[list[shared_contexts.Row]]:
    """Every row by itself."""
    return [[row] for row in rows]


@contextmanager
def counted(model: PreTrainedModel) -> Iterator[list[int]]:
    """The number of tokens, padding included, of every forward pass."""
    passes: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: passes.append(kwargs["input_ids"].numel()), with_kwargs=True
    )
    try:
        yield passes
    finally:
        hook.remove()


if __name__ == "__main__":
    main()
