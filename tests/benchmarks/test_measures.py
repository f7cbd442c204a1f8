"""What a run of an experiment is measured by, and what several seeds say together."""

from typing import Any

import pytest
import torch
from learning.measure import Curve, distance, gradients_by_spread
from learning.summary import equal_success, mean_curve, summary
from pages.learning import curve_tables
from transformers import TrainerControl, TrainerState

from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.finished_runs import run
from tests.support.ragen_trl.trainers import rollout_of


def test_a_summary_is_of_the_best_evaluation_and_the_last_and_of_the_first_at_the_level() -> None:
    collapsed = run([0.2, 0.8, 0.4], [0, 100, 200], loss_min=-3.0)
    steady = run([0.2, 0.5, 0.6], [0, 100, 200], seed=1, peak_mib=700.0)
    found = summary([collapsed, steady], level=0.6)
    assert found["seeds"] == [0, 1]
    assert found["success"] == {"mean": 0.5, "low": 0.4, "high": 0.6}
    assert found["peak"] == {"mean": pytest.approx(0.7), "low": 0.6, "high": 0.8}
    assert found["kept"] == [0.5, 1.0]
    assert found["peak_mib"] == {"mean": 650.0, "low": 600.0, "high": 700.0}
    assert found["loss_min"] == -3.0
    assert [spent["trajectories"] for spent in found["reached"]] == [100, 200]
    assert summary([collapsed, steady], level=0.7)["reached"][1] is None


def test_equal_success_is_the_highest_step_of_a_twentieth_that_all_runs_have_reached() -> None:
    ours = [run([0.1, rate, 0.9], [0, 300, 400], reference=200, seed=seed) for seed, rate in enumerate((0.62, 0.3))]
    theirs = [run([0.1, 0.2, 0.64], [0, 400, 800], seed=seed, peak_mib=1200.0) for seed in (0, 1)]
    found = equal_success(ours, theirs)
    assert found["level"] == 0.6
    assert found["trajectories"] == {"ours": 350.0, "theirs": 800.0, "ratio": 0.4375}
    assert found["policy_trajectories"] == {"ours": 150.0, "theirs": 800.0, "ratio": 0.1875}
    assert found["peak_mib"] == {"ours": 600.0, "theirs": 1200.0, "ratio": 0.5}
    assert (found["seeds"], found["missing"]) == ([0, 1], {})


def test_equal_success_is_that_of_the_seeds_that_both_have() -> None:
    """Regression: a missing seed was taken for other commits, and means were over different seeds."""
    both = [run([0.1, 0.9], [0, 100], seed=seed) for seed in (0, 1)]
    slow = run([0.1, 0.9], [0, 800], seed=2)
    found = equal_success([*both, slow], both)
    assert found is not None and (found["seeds"], found["missing"]) == ([0, 1], {"theirs": [2]})
    assert found["trajectories"] == {"ours": 100.0, "theirs": 100.0, "ratio": 1.0}
    assert found["cpu_seconds"] == {"ours": 1.0, "theirs": 1.0, "ratio": 1.0}
    assert equal_success([slow], both) is None


def test_costs_at_equal_success_compare_at_one_commit_on_one_machine_only() -> None:
    """Regression: the package became twice as fast between two commits, which was taken for what a variant saves."""
    ours = [run([0.1, 0.5, 0.9], [0, 100, 200], seed=seed) for seed in (0, 1)]
    theirs = [run([0.1, 0.2, 0.9], [0, 100, 200], seed=seed) for seed in (0, 1)]
    found = equal_success(ours, theirs)
    assert found is not None and found["cpu_seconds"] == {"ours": 2.0, "theirs": 2.0, "ratio": 1.0}
    assert found["peak_mib"] == {"ours": 600.0, "theirs": 600.0, "ratio": 1.0}
    for other in ({"commit": "later"}, {"machine": {"cpus": 64}}):
        elsewhere = equal_success(ours, [theirs[0], {**theirs[1], **other}])
        assert elsewhere is not None and elsewhere["cpu_seconds"] is elsewhere["peak_mib"] is None
        assert elsewhere["trajectories"] == found["trajectories"]


def test_nothing_is_compared_at_a_success_that_training_began_with() -> None:
    assert equal_success([run([0.5, 0.9], [0, 9])], [run([0.5, 0.54], [0, 9])]) is None


def test_a_mean_curve_is_flat_while_the_reference_plays_and_ends_with_the_shortest_run() -> None:
    x, mean, low, high = mean_curve([run([0.2, 0.6], [0, 100], reference=50), run([0.4, 0.4], [0, 200])], points=5)
    assert x == [0.0, 25.0, 50.0, 75.0, 100.0]
    assert low == pytest.approx([0.2, 0.2, 0.2, 0.4, 0.4])
    assert high == pytest.approx([0.4, 0.4, 0.4, 0.4, 0.6])
    assert mean == pytest.approx([0.3, 0.3, 0.3, 0.4, 0.5])


def log(curve: Any, step: int, **logs: float) -> bool:
    """Feeds a curve the log of an update; whether training is to stop."""
    control = TrainerControl()
    curve.on_log(None, TrainerState(global_step=step), control, {"loss": 1.0, **logs})
    return bool(control.should_training_stop)


def test_a_curve_counts_what_the_reference_and_refills_sample_and_stops_at_the_number() -> None:
    rates = iter([0.1, 0.2, 0.3, 0.4])
    curve = Curve(
        lambda: {"success": next(rates)}, trajectories=100, every=40, steps_per_rollout=1
    )
    curve.begin()
    logs = {"astar/reference_episodes": 30.0}
    assert not log(curve, 1, **logs, **{"filter/trajectories_sampled": 8.0, "entropy": 2.0})  # 38: not yet
    assert not log(curve, 2, **logs, **{"filter/trajectories_sampled": 16.0, "entropy": 4.0})  # 54: measured
    assert not log(curve, 3, **logs, **{"filter/trajectories_sampled": 8.0, "entropy": 1.0})  # 62: not before 80
    assert log(curve, 4, **logs, **{"filter/trajectories_sampled": 40.0, "loss": -2.0})  # 102: measured, enough
    curve.finish(step=4)
    assert [(row["step"], row["trajectories"], row["reference_trajectories"]) for row in curve.rows] == [
        (0, 0, 0),
        (2, 54, 30),
        (4, 102, 30),
    ]
    assert [row.get("entropy") for row in curve.rows] == [None, 3.0, 1.0]
    assert curve.totals()["loss_min"] == -2.0
    assert "due" not in curve.rows[0]


def test_a_curve_neither_measures_nor_stops_between_two_updates_on_one_rollout() -> None:
    curve = Curve(lambda: {"success": 0.5}, trajectories=10, every=5, steps_per_rollout=2)
    curve.begin()
    assert not log(curve, 1, **{"filter/trajectories_sampled": 16.0})
    assert len(curve.rows) == 1
    assert log(curve, 2)
    assert [row["step"] for row in curve.rows] == [0, 2]


def test_the_distance_is_the_mean_over_trajectories_of_the_summed_log_ratio() -> None:
    model = build_tiny_model(build_tiny_tokenizer(), seed=3, hidden_size=32, num_layers=2)
    turns = (Turn((5, 6, 7), (8, 9), (-1.0, -2.0), "?", "!", 0.0), Turn((10,), (11,), (-0.5,), "?", "!", 0.0))
    trajectories = [Trajectory(turns, seed=0), Trajectory(turns[:1], seed=1)]

    def log_ratio(ids: list[int], sampled: dict[int, float]) -> float:
        total = 0.0
        for place, logprob in sampled.items():
            with torch.no_grad():
                logits = model(torch.tensor([ids[:place]])).logits[0, -1]
            total += logprob - torch.log_softmax(logits, -1)[ids[place]].item()
        return total

    ratios = [
        log_ratio([5, 6, 7, 8, 9, 10, 11], {3: -1.0, 4: -2.0, 6: -0.5}),
        log_ratio([5, 6, 7, 8, 9], {3: -1.0, 4: -2.0}),
    ]
    assert distance(trajectories, model) == pytest.approx(sum(ratios) / 2, abs=1e-4)


def test_the_gradient_of_the_task_grows_with_the_spread_and_that_of_the_entropy_does_not() -> None:
    """The groups play the same two episodes; only what these pay differs."""
    model = build_tiny_model(build_tiny_tokenizer(), seed=3, hidden_size=32, num_layers=2)

    def episode(reply: tuple[int, ...], pays: float) -> Trajectory:
        return Trajectory((Turn((5, 6), reply, (-1.0,) * len(reply), "?", "!", pays),), seed=0)

    spreads = [2.0, 0.0, 4.0, 1.0]
    played = [each for spread in spreads for each in (episode((8, 9), 0.0), episode((7,), spread))]
    found = gradients_by_spread(model, rollout_of(played, 2))
    assert [found[f"std_{part}"] for part in (1, 2, 3, 4)] == pytest.approx([s / 2**0.5 for s in (0, 1, 2, 4)])
    assert found["task_1"] == 0.0
    assert [found[f"task_{part}"] / found["task_2"] for part in (3, 4)] == pytest.approx([2.0, 4.0], rel=1e-4)
    assert all(found[f"entropy_{part}"] == pytest.approx(found["entropy_1"], rel=1e-4) for part in (2, 3, 4))
    assert all(parameter.grad is None for parameter in model.parameters())

    def likelihood(ids: list[int]) -> torch.Tensor:
        logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1)
        return sum((logprobs[place - 1, ids[place]] for place in range(2, len(ids))), torch.tensor(0.0))

    ((likelihood([5, 6, 7]) - likelihood([5, 6, 8, 9])) * 0.5 / 2).backward()  # advantages ± 0.5 of two
    norm = sum(float(p.grad.square().sum()) for p in model.parameters() if p.grad is not None) ** 0.5
    assert found["task_2"] == pytest.approx(norm, rel=1e-4)


def test_the_table_has_the_baselines_first_and_says_how_many_seeds_reached_the_level() -> None:
    runs = [run([0.1, 0.9], [0, 1000]), run([0.1, 0.3], [0, 1000], seed=1)]
    rate = {"success": 0.25, "success_low": 0.2, "success_high": 0.31}
    task = {
        "prepared": {
            "settings": {"env": "ragen/FrozenLake-v0", "evaluations": {"held out": {}}, "episodes": 256},
            "results": {"held out": dict.fromkeys(("random", "warm_start", "warm_start_greedy", "oracle"), rate)},
        },
        "trajectories": 1000,
        "level": 0.5,
        "variants": {"starpo": {"label": "StarPO", "summary": summary(runs, 0.5), "runs": runs}},
        "astar_po_to_starpo": None,
    }
    made = {"question": {"name": "curves"}, "cpu_minutes": 12.3, "commits": ["0123456789abc+changes"]}
    lines = curve_tables({**made, "tasks": {"lake": task}}).splitlines()
    assert lines[2] == "![Learning curves: lake](../../benchmarks/results/curves_lake.png)"
    assert [line.split(" | ")[0] for line in lines[6:11]] == [
        *("| random", "| warm start", "| warm start, greedy", "| oracle", "| StarPO")
    ]
    assert lines[6].startswith("| random | 0.25 [0.20, 0.31] |")
    cells = "0.60 (0.30 to 0.90) | 0.60 (0.30 to 0.90) | 100 % | 1,000 (1 of 2) | 1.00 | 0.25 | 0.1 | 600"
    assert lines[10] == f"| StarPO | {cells} |"
    assert lines[-1] == "12 minutes of CPU in training in all. Runs made with `012345678+changes`."
