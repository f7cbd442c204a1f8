"""What an update takes: prefixes shared or not, and TRL's own. Seconds of one thread and peak memory.

    python benchmarks/update.py [--smoke]   # wants `make smollm2`; some 40 minutes on one core

Rows are episodes of a noisy oracle on FrozenLake in the model's own tokens, so they share what they share in training.
An update is forward, backward and the optimizer's step. *TRL* is ``GRPOTrainer``'s loss on the same rows, *apart* ours
without sharing, *shared* ours as it is used. Every measurement is a process of its own; the ways take turns.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from record import answer_of, memory_of, place, reset_peak, table, write

LAKE, SMOLLM2 = "ragen/FrozenLake-v0", "models/SmolLM2-135M-Instruct"
EMBEDDED = [
    dict(work="update", model=None, rank=None, checkpointing=False, rows=128, batch_size=128),
    dict(work="critic", model=None, rank=None, checkpointing=False, rows=128, batch_size=128),
    dict(work="warm start", model=None, rank=None, checkpointing=False, rows=160, batch_size=16),
]
PRETRAINED = [
    dict(work="update", model=SMOLLM2, rank=32, checkpointing=False, rows=16, batch_size=8),
    dict(work="update", model=SMOLLM2, rank=32, checkpointing=True, rows=16, batch_size=8),
    dict(work="update", model=SMOLLM2, rank=None, checkpointing=False, rows=16, batch_size=8),
    dict(work="critic", model=SMOLLM2, rank=32, checkpointing=False, rows=16, batch_size=8),
    dict(work="warm start", model=SMOLLM2, rank=None, checkpointing=False, rows=16, batch_size=8),
]
Case = dict[str, Any]


def main() -> None:
    """Measure every case in every way, in turns; ``--measure`` is one of them, in this process."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="processes for each case and way")
    parser.add_argument("--repeats", type=int, default=2, help="updates of each process")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.measure:
        task = json.loads(asked.measure)
        print(json.dumps(measure(task["case"], task["way"], task["repeats"])))
        return
    cases = [*EMBEDDED, *PRETRAINED]
    if asked.smoke:
        cases, asked.rounds, asked.repeats = [{**EMBEDDED[0], "rows": 16, "batch_size": 8}], 1, 1
    elif not Path(SMOLLM2).is_dir():
        parser.error(f"there is no {SMOLLM2}; `make smollm2` makes it")
    rows: list[Case] = [{**case, "found": {}} for case in cases]
    for _ in range(asked.rounds):
        for row, case in zip(rows, cases, strict=True):
            for way in ("TRL", "apart", "shared") if case["work"] == "update" else ("apart", "shared"):
                task = json.dumps({"case": case, "way": way, "repeats": asked.repeats})
                answer = answer_of([sys.executable, __file__, "--measure", task])
                row["found"].setdefault(way, []).append(answer)
                print(case, way, answer, flush=True)
    command = f"python benchmarks/update.py --rounds {asked.rounds} --repeats {asked.repeats}"
    write(place("update", asked.smoke, asked.out), command, rows=rows, table=shown(rows, asked.rounds * asked.repeats))


def shown(rows: list[Case], repetitions: int) -> dict[str, Any]:
    """One row a case: medians of each way, and shared over apart."""
    lines = []
    for row in rows:
        seconds, peaks = {}, {}
        for way, answers in row["found"].items():
            seconds[way] = statistics.median(value for answer in answers for value in answer["seconds"])
            peaks[way] = statistics.median(answer["peak_mib"] for answer in answers)
        name = "embedded" if row["model"] is None else Path(row["model"]).name
        trained = "all weights" if row["rank"] is None else f"LoRA, r = {row['rank']}"
        ways = ("TRL", "apart", "shared")
        times = [f"{seconds[way]:.2f}" if way in seconds else "" for way in ways]
        memory = [f"{peaks[way]:,.0f}" if way in peaks else "" for way in ways]
        ratio = f"{seconds['shared'] / seconds['apart']:.2f}"
        checkpoints = ", checkpointing" * row["checkpointing"]
        lines.append([f"{name}, {row['work']}", trained + checkpoints, row["rows"], *times, ratio, *memory])
    columns = ["model, what", "trained", "rows", *("TRL s", "apart s", "shared s", "shared / apart")]
    columns += ["TRL MiB", "apart MiB", "shared MiB"]
    note = f"Medians of {repetitions} repetitions; CPU seconds of one thread, peak memory above what was held before."
    return table(columns, lines, note)


def measure(case: Case, way: str, repeats: int) -> dict[str, Any]:
    """Seconds of each repetition after a first one, and the peak of memory above what was held before them (MiB)."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
    from ragen_trl.rollout.environments import make_chat, make_turns

    torch.set_num_threads(1)
    torch.manual_seed(0)
    if case["model"] is None:
        tokenizer = build_tiny_tokenizer(env=LAKE)
        model = build_tiny_model(tokenizer, 0)
    else:
        tokenizer = AutoTokenizer.from_pretrained(case["model"])
        model = AutoModelForCausalLM.from_pretrained(case["model"], dtype="float32")
    with tempfile.TemporaryDirectory() as folder:
        args = options(case, folder)
        rows = played(case, args, make_chat(tokenizer, make_turns(LAKE, args), args))
        work = {"update": updates, "critic": critic_updates, "warm start": warm_starts}[case["work"]]
        repeated = work(case, model, tokenizer, args, rows, way)
        reset_peak()
        held, seconds = memory_of()["peak_mib"], []
        for _ in range(repeats + 1):
            began = time.process_time()
            repeated()
            seconds.append(time.process_time() - began)
    return {"seconds": seconds[1:], "peak_mib": memory_of()["peak_mib"] - held}


def options(case: Case, folder: str, config: Any = None, **more: Any) -> Any:
    """Of a trainer of the case's model."""
    from ragen_trl import StarPOConfig
    from ragen_trl.config.recipes import played

    form = {"advantage": "gae" if case["work"] == "critic" else "group", "think": False, **played(LAKE, True)}
    return (config or StarPOConfig)(
        output_dir=folder,
        **({} if config else form),
        beta=0.0,
        per_device_train_batch_size=case["batch_size"],
        gradient_accumulation_steps=case["rows"] // case["batch_size"],
        num_generations=min(8, case["rows"]),
        gradient_checkpointing=case["checkpointing"],
        bf16=False,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        **more,
    )


def played(case: Case, args: Any, chat: Any) -> list[Any]:
    """Noisy oracle play: groups of 8 from one start state each, or demonstrations, each from its own."""
    import numpy as np

    from ragen_envs import demonstration
    from ragen_trl.policies.scripted import ScriptedPolicy
    from ragen_trl.rollout.environments import EnvPool, env_specs
    from ragen_trl.rollout.interfaces import Start
    from ragen_trl.rollout.seeds import WARM_START

    size = 1 if case["work"] == "warm start" else min(8, case["rows"])

    def script(turns: Any, random: np.random.Generator) -> str:
        return str(turns.format_reply(demonstration(turns, turns.actions_left, 2, random, 0.5)))

    starts = [Start.drawn(WARM_START + row // size, (0, row)) for row in range(case["rows"])]
    pool = EnvPool(args)
    found = pool.play(pool.take(env_specs(LAKE, args) * case["rows"]), ScriptedPolicy(script, chat), starts)
    pool.close()
    return list(found)


def lora(case: Case) -> Any:
    """The adapter of a case, None where all weights are trained."""
    from peft import LoraConfig

    rank = case["rank"]
    return None if rank is None else LoraConfig(r=rank, lora_alpha=rank, target_modules="all-linear")


def our_trainer(case: Case, model: Any, tokenizer: Any, args: Any, way: str) -> Any:
    """StarPO's trainer, with prefixes shared or not."""
    from ragen_trl import StarPOTrainer

    with patch("ragen_trl.training.scoring.can_share_prefixes", return_value=way == "shared"):
        return StarPOTrainer(model, LAKE, args, processing_class=tokenizer, peft_config=lora(case))


def updates(case: Case, model: Any, tokenizer: Any, args: Any, rows: list[Any], way: str) -> Callable[[], None]:
    """One optimizer step on all rows, in passes of ``batch_size`` rows."""
    import torch
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    from ragen_trl.batching.batch import trajectory_batch

    pad_id, size = tokenizer.pad_token_id, case["batch_size"]
    passes = [trajectory_batch(rows[first : first + size], pad_id) for first in range(0, len(rows), size)]
    if way == "TRL":
        given = options(case, args.output_dir, GRPOConfig, loss_type="dapo", temperature=args.temperature)
        data = Dataset.from_dict({"prompt": ["?"] * len(rows)})
        constant: Any = lambda completions, **_: [0.0] * len(completions)  # noqa: E731
        trainer = GRPOTrainer(model, constant, given, data, processing_class=tokenizer, peft_config=lora(case))
        trainer.current_gradient_accumulation_steps = len(passes)  # which `train` would set
        total = sum(int((one["tool_mask"] * one["completion_mask"]).sum()) for one in passes)
        for one in passes:
            one.update(advantages=torch.ones(len(one["prompt_ids"])), num_items_in_batch=torch.tensor(total))
            del one["sampling_per_token_logps"]
    else:
        trainer = our_trainer(case, model, tokenizer, args, way)
    policy = trainer.model
    policy.train()
    if case["checkpointing"]:  # which `train` would enable
        policy.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW([value for value in policy.parameters() if value.requires_grad], lr=1e-6)

    def loss(inputs: dict[str, Any]) -> Any:
        if way == "TRL":
            return trainer.compute_loss(policy, inputs)
        logprobs, _ = trainer.score(policy, inputs)
        return -(logprobs * inputs["tool_mask"] * inputs["completion_mask"]).sum()

    def update() -> None:
        for inputs in passes:
            loss(inputs).backward()
        optimizer.step()
        optimizer.zero_grad()

    return update


def critic_updates(case: Case, model: Any, tokenizer: Any, args: Any, rows: list[Any], way: str) -> Callable[[], None]:
    """The values of all rows, and one step on them."""
    import torch

    from ragen_trl.batching.batch import turn_columns

    critic = our_trainer(case, model, tokenizer, args, way).critic

    def update() -> None:
        values, _ = critic.values(rows, [False] * len(rows))
        critic.update(rows, torch.ones_like(values), turn_columns(rows) >= 0, values, clip=None)

    return update


def warm_starts(case: Case, model: Any, tokenizer: Any, args: Any, rows: list[Any], way: str) -> Callable[[], None]:
    """A pass over all demonstrations."""
    from ragen_trl.imitation.fine_tuning import WarmStartConfig, warm_start

    config = WarmStartConfig(case["rows"], demo_batch_size=case["batch_size"], demo_learning_rate=1e-6)
    folder = Path(args.output_dir) / "model"

    def learn() -> None:
        with patch("ragen_trl.imitation.fine_tuning.can_share_prefixes", return_value=way == "shared"):
            warm_start(model, tokenizer, LAKE, args, config, folder, demonstrations=rows)

    return learn


if __name__ == "__main__":
    main()
