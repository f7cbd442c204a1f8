"""Two processes take the step of one, and end although one of them plays longer, also with one vLLM server."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl.training.reference import Reference
from tests.support.ragen_trl.astar_runs import cached
from tests.support.ragen_trl.launches import on_two_processes
from tests.support.ragen_trl.trainers import LastRollout, parameters, small_model
from tests.support.ragen_trl.two_ranks import STAGE_1, case, make_trainer, result

SEVERAL = {"num_generations": 2, "max_completion_length": 600}
CASES: dict[str, dict[str, Any]] = {
    "batch std": case(scale_rewards="batch", loss_type="dapo"),
    "gigpo": case(advantage="gigpo"),
    "turn_gae": case(advantage="turn_gae", turn_lambda=0.9),
    "bi_level_gae": case(advantage="bi_level_gae", gae_lambda=0.9),
    "gae and filter": case(rows=24, advantage="gae", filter_ratio=0.4),
    "parts and filter": case(rows=24, algorithm="StarPO in parts", filter_ratio=0.4),
    "parts and gae": case(algorithm="StarPO in parts", advantage="gae", gae_lambda=0.9),
    "parts, twice": case(algorithm="StarPO in parts", num_iterations=2, max_steps=2),
    "refill": case("lottery", num_generations=2, max_refills=4),
    "turns": case("long", 4, **SEVERAL),
    "few at a time": case("long", 8, **{**SEVERAL, "num_generations": 4}, rollout_batch_size=3),
    "own loss": case(algorithm="own loss"),  # regression: the other process waited for ever
    "environments and filter": case("lake draws", 24, algorithm="StarPO-S", filter_ratio=0.5),
    # 10 rows in batches of 4: on two processes the last batches repeat six of them.
    "evaluation": case(
        eval_strategy="steps", eval_steps=1, num_eval_seeds=10, per_device_eval_batch_size=4, eval_on_start=True
    ),
    # Two at a time next to six of one process.
    "A*-PO": case(
        algorithm="A*-PO", **STAGE_1, max_steps=2, refresh_steps=2, beta2=0.1, kl_coef=0.1, rollout_batch_size=2
    ),
    "A*-PO in groups": case(
        "lottery", algorithm="A*-PO", **{**STAGE_1, "num_train_seeds": 6}, num_generations=4, filter_ratio=0.7
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes have left the results of all cases; one launch, since it costs more than the cases."""
    path = tmp_path_factory.mktemp("ranks")
    (path / "cases.json").write_text(json.dumps(CASES), encoding="utf-8")
    on_two_processes("tests.support.ragen_trl.two_ranks", path, timeout=280)
    return path


COMMON = ("success", "return", "reward", "turns", "grad_norm", "filter/kept_groups", "filter/trajectories_sampled")
OF_CRITIC = ("value_loss", "clip_fraction", "grad_norm", "explained_variance", "value_mean", "return_mean")
OF_ASTAR = ("value", "advantage", "advantage_std", "log_ratio", "residual", "residual_squared", "reference_episodes")


def compared(row: dict[str, Any]) -> dict[str, float]:
    """The metrics of an update that do not depend on how it was divided."""
    names = [*COMMON, *(f"critic/{name}" for name in OF_CRITIC), *(f"astar/{name}" for name in OF_ASTAR)]
    names += ["filter/in_group_std", "FrozenLake-v0/success", "FrozenLake-v0/turns"]
    return {name: row[name] for name in names if name in row}


def assert_same_evaluation(single: list[dict[str, Any]], double: list[dict[str, Any]]) -> None:
    """Every row counts once, on one process and on two."""
    timed = ("runtime", "per_second", "time", "seconds")
    rows = [[row for row in logged if "eval_success" in row] for logged in (single, double)]
    assert [len(found) for found in rows] == [2, 2]
    for expected, found in zip(*rows, strict=True):
        names = [name for name in expected if name.startswith("eval_") and not name.endswith(timed)]
        assert len(names) > 20
        same = {name: expected[name] for name in names}
        assert {name: found[name] for name in names} == pytest.approx(same, rel=1e-4, abs=1e-5)
    assert 0 < rows[0][0]["eval_success"] < 1


@pytest.mark.parametrize("name", CASES)
def test_two_processes_take_the_step_of_one(folder: Path, name: str) -> None:
    trainer = make_trainer(folder / f"one {name}", CASES[name], processes=1)
    before, last = parameters(trainer), LastRollout(trainer)
    trainer.train()
    single = result(trainer, last)
    first, second = (torch.load(folder / f"{name} {rank}.pt", weights_only=False) for rank in (0, 1))
    moved = {key: value - before[key] for key, value in single["parameters"].items()}
    assert max(float(value.abs().max()) for value in moved.values()) > 1e-3
    for key, value in single["parameters"].items():
        torch.testing.assert_close(first["parameters"][key], value, rtol=1e-4, atol=1e-6, msg=key)
        assert torch.equal(first["parameters"][key], second["parameters"][key]), key
    if name == "evaluation":
        assert_same_evaluation(single["metrics"], first["metrics"])
        return
    options = CASES[name]["options"]
    steps, passes = options.get("max_steps", 1), options.get("num_iterations", 1)
    for row in range(steps):
        expected = compared(single["metrics"][row])
        assert len(expected) >= (1 if row % passes else len(COMMON))  # a second pass plays nothing
        found = compared(first["metrics"][row])
        if name == "A*-PO in groups":  # logged are means of micro-batches, into which the filter leaves unequal numbers
            for key in ("astar/residual", "astar/residual_squared"):
                del found[key], expected[key]
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6)
    if "gae" in name:
        assert "critic/value_loss" in expected
    if name == "refill":
        assert expected["filter/trajectories_sampled"] > 12
    if name.startswith("A*-PO"):
        assert single["values"][0].starts == first["values"][0].starts


@pytest.mark.parametrize("name", [name for name in CASES if "filter" in name or name == "refill"])
def test_kept_trajectories_are_shared_evenly_and_fill_micro_batches(folder: Path, name: str) -> None:
    """Regression: they stayed where they had been played, in as many micro-batches as before."""
    first, second = (torch.load(folder / f"{name} {rank}.pt", weights_only=False)["trained"] for rank in (0, 1))
    assert len(first) == len(second) == CASES[name]["rows"] // 4
    if "parts" in name:  # shared evenly are trajectories' rows, of which one may have three
        assert abs(sum(first) - sum(second)) <= 3
    else:
        assert abs(sum(first) - sum(second)) <= 1
        used = -(-max(sum(first), sum(second)) // 2)  # micro-batches of two rows
        assert [bool(count) for count in first] == [False] * (len(first) - used) + [True] * used


def test_a_process_that_is_done_early_does_not_keep_the_other_from_playing_on(folder: Path) -> None:
    turns = [torch.load(folder / f"turns {rank}.pt", weights_only=False)["turns"] for rank in (0, 1)]
    assert max(turns[0]) != max(turns[1])


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("A*-PO")])
def test_two_processes_know_the_same_values_and_write_them_once(folder: Path, name: str) -> None:
    one, other = (torch.load(folder / f"{name} {rank}.pt", weights_only=False)["values"] for rank in (0, 1))
    assert one == other
    kept = cached(folder / f"two {name}")
    assert sum(map(len, kept.values())) == one[0].episodes == one[0].played
    assert kept.keys() == one[0].starts.keys()


# One vLLM server for both processes


def test_training_with_a_server_ends_although_one_process_plays_longer(folder: Path) -> None:
    """Everybody trains on their own replies: those to another context would have other log-probabilities."""
    served = [torch.load(folder / f"vllm {rank}.pt", weights_only=False) for rank in (0, 1)]
    turns = [found["starpo"]["turns"] for found in served]
    assert max(turns[0]) != max(turns[1])
    for algorithm in ("starpo", "astar_po"):
        first, second = (found[algorithm]["parameters"] for found in served)
        assert all(torch.equal(value, second[name]) for name, value in first.items())
    rows = [row for found in served for name in ("starpo", "astar_po") for row in found[name]["metrics"]]
    deviations = [row["sampling/ratio_deviation_max"] for row in rows if "sampling/ratio_deviation_max" in row]
    assert len(deviations) >= 2 and max(deviations) < 1e-4
    one, other = (found["astar_po"]["values"] for found in served)
    assert one == other
    assert len(one[0].starts) == 5  # one episode each in the first round: three on one process, two on the other
    assert served[0]["starpo"]["evaluated"] == served[1]["starpo"]["evaluated"]


# What does not depend on the process


def test_fingerprints_are_the_same_in_another_process(folder: Path) -> None:
    """Hashes of strings have another seed there."""
    assert (folder / "digests.txt").read_text() == Reference(small_model()).fingerprint()
