"""How long does an update take, and how much memory, without the rollout?

    python benchmarks/train_step.py            # half an hour on the CPU, a model of 30 million parameters
    python benchmarks/train_step.py --gpu      # the shape of Qwen2.5-0.5B, 128 trajectories of 5 turns of 100 tokens
    python benchmarks/train_step.py --smoke    # two settings, some seconds, written to runs/ only

Full fine-tuning against LoRA, with and without gradient checkpointing, micro-batches of similar lengths against TRL's,
and the forms of credit against each other. Every measurement is a process of its own (``measuring/updates.py``). Each
setting is measured three times; the settings take turns. Seconds on the CPU are CPU time of one thread. Writes
``results/train_step.json``, of which ``--gpu`` replaces only its own part.
"""

import argparse
import json
import statistics
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from measuring.processes import answer_of_module
from measuring.updates import Setting, Workload

from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.provenance import provenance

HERE = Path(__file__).parent
SMALL = Workload(
    shape={
        "vocab_size": 4000,
        "hidden_size": 512,
        "intermediate_size": 1536,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
    },
    trajectories=16,
    turns=5,
    goes_on=0.8,
    tokens=30,
    prompt=60,
    gpu=False,
    updates=2,
)
QWEN = Workload(  # the published configuration of Qwen2.5-0.5B, tied embeddings included
    shape={
        "vocab_size": 151936,
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_hidden_layers": 24,
        "num_attention_heads": 14,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
    },
    trajectories=128,
    turns=5,
    goes_on=1.0,
    tokens=100,
    prompt=150,
    gpu=True,
    updates=4,
)
ON_CPU = [
    Setting(),
    Setting(by_length=False),
    Setting(batch_size=1),
    Setting(checkpointing=True),
    Setting(rank=16),
    Setting(rank=64),
    Setting(rank=64, checkpointing=True),
    Setting(batch_size=1, checkpointing=True),
    Setting(batch_size=1, checkpointing=True, rank=16),
    Setting(batch_size=1, checkpointing=True, rank=64),
    Setting(form="gae"),
    Setting(form="gae", rank=64),
    Setting(form="A*-PO"),
    Setting(form="A*-PO", rank=64),
]
ON_GPU = [
    *ON_CPU,
    Setting(filter_ratio=0.25),
    Setting(rank=64, filter_ratio=0.25),
]


def main() -> None:
    """Measure every setting and write one JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--repeats", type=int, default=3, help="Processes for each setting.")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "train_step.json")
    options = parser.parse_args()
    part, workload, settings, repeats = "cpu", SMALL, ON_CPU, options.repeats
    if options.gpu:
        part, workload, settings = "gpu", QWEN, ON_GPU
    if options.smoke:
        workload, repeats = Workload(**{**asdict(SMALL), **SMOKE}), 1
        settings = [Setting(), Setting(rank=16, checkpointing=True, batch_size=1)]
        options.output = Path("runs/benchmark-train-step-smoke.json")
    command = f"python benchmarks/train_step.py{' --gpu' * options.gpu} --repeats {repeats}"
    known = json.loads(options.output.read_text(encoding="utf-8")) if options.output.is_file() else {}
    for rows in measured_in_turns(settings, workload, repeats):
        found = {**provenance(), "command": command, "workload": asdict(workload), "rows": rows}
        write_atomically(options.output, json.dumps({"cpu": None, "gpu": None, **known, part: found}, indent=1))
    print(f"written: {options.output}")


# A tiny model, a few short episodes.
SMOKE: dict[str, Any] = {
    "shape": {**SMALL.shape, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2},
    "trajectories": 8,
    "tokens": 8,
    "prompt": 8,
    "updates": 1,
}


def measured_in_turns(settings: list[Setting], workload: Workload, repeats: int) -> Iterator[list[dict[str, Any]]]:
    """Every setting ``repeats`` times, all of them once before any a second time; the rows after each round."""
    found: dict[Setting, list[dict[str, Any]]] = {setting: [] for setting in settings}
    for _ in range(repeats):
        for setting in settings:
            found[setting].append(measured_alone(setting, workload))
            print(setting, f"{statistics.median(found[setting][-1]['seconds']):.2f} s", flush=True)
        yield [row_of(setting, results) for setting, results in found.items()]


def measured_alone(setting: Setting, workload: Workload) -> dict[str, Any]:
    """One measurement in a process of its own, with one thread."""
    asked = json.dumps({"setting": asdict(setting), "workload": asdict(workload)})
    result: dict[str, Any] = answer_of_module("measuring.updates", asked)
    return result


def row_of(setting: Setting, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Medians over all updates of all processes; memory over processes."""
    seconds = [value for result in results for value in result["seconds"]]
    return {
        **asdict(setting),
        "seconds": statistics.median(seconds),
        "fastest": min(seconds),
        "slowest": max(seconds),
        "updates": len(seconds),
        "peak_mib": statistics.median(result["peak_mib"] for result in results),
        "padding": statistics.fmean(value for result in results for value in result["padding"]),
        "trained_parameters": results[0]["trained_parameters"],
        "parameters": results[0]["parameters"],
    }


if __name__ == "__main__":
    main()
