"""TRL's evaluation during training: every row counts once, and the rows are played that a user asks for."""

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from datasets import Dataset, DatasetDict, IterableDataset
from trl import GRPOTrainer

from ragen_trl import EnvSpec, StarPOTrainer, Trajectory
from ragen_trl.rollout.seeds import SeedOverlapError, StartStateError
from ragen_trl.trainers.arguments import ArgumentError
from ragen_trl.trainers.trl.evaluation_totals import EvaluationTotals, length_figures, reward_figures
from tests.support.ragen_trl.trainers import LAKE, lottery, small_trainer

BANDIT = "ragen/Bandit-v0"


class Recorder(StarPOTrainer):
    """Keeps what an evaluation played, and what TRL made of each batch."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.played: list[tuple[Any, Trajectory]] = []
        self.batches: list[dict[str, list[float]]] = []
        super().__init__(*args, **kwargs)

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        made = super().rollout(starts, envs, policy)
        self.played += [(type(env.unwrapped).__name__, one) for env, one in zip(envs, made, strict=True)]
        return made

    def evaluation_batch(self, rows: Any) -> Any:
        batch = super().evaluation_batch(rows)
        self.batches.append({name: list(values) for name, values in self._metrics["eval"].items()})
        return batch


def recorder(folder: Path, env: Any = LAKE, **options: Any) -> Recorder:
    trainer = small_trainer(folder, env, trainer=Recorder, **{"per_device_eval_batch_size": 8, **options})
    assert isinstance(trainer, Recorder)
    return trainer


def odd(seed: list[int], **_: Any) -> list[float | None]:
    """1 for the first of every eight start states and for all from the ninth on; nothing for the third."""
    return [None if one % 8 == 2 and one < 8008 else float(one % 8 == 0 or one >= 8008) for one in seed]


def test_an_unequal_last_batch_has_its_share(tmp_path: Path) -> None:
    """1 of 8 and 2 of 2 rows are 0.3 of all; the mean of the batches is 0.5625."""
    first = lambda seed, **_: [float(one == 8000 or one >= 8008) for one in seed]  # noqa: E731
    trainer = recorder(tmp_path, lottery(draws=3), num_eval_seeds=10, reward_funcs=[first])
    found = trainer.evaluate()
    assert found["eval_rewards/<lambda>/mean"] == pytest.approx(0.3)
    of_batches = [batch["rewards/<lambda>/mean"][0] for batch in trainer.batches]
    assert of_batches == pytest.approx([0.125, 1.0])


def test_all_figures_are_those_of_all_rows(tmp_path: Path) -> None:
    """Those of one batch of ten rows; whatever the size of the batches, the same episodes are played."""
    options: dict[str, Any] = {"num_eval_seeds": 10, "reward_funcs": [odd], "num_generations_eval": 2, "beta": 0.0}
    whole = recorder(tmp_path, lottery(draws=3), per_device_eval_batch_size=20, **options)
    expected = whole.evaluate()
    parts = recorder(tmp_path, lottery(draws=3), per_device_eval_batch_size=6, **options)
    found = parts.evaluate()
    assert [one.token_ids for _, one in parts.played] == [one.token_ids for _, one in whole.played]
    timed = ("runtime", "per_second", "time", "seconds")
    same = {name: value for name, value in expected.items() if not name.endswith(timed)}
    assert len(same) > 30
    assert {name: found[name] for name in same} == pytest.approx(same, rel=1e-5, abs=1e-6, nan_ok=True)
    success = fmean(one.success for _, one in whole.played)
    assert found["eval_success"] == pytest.approx(success)
    assert 0 < success < 1


@pytest.mark.parametrize("scale", ["group", "batch"])
def test_one_batch_gives_what_trl_logs_of_it(tmp_path: Path, scale: str) -> None:
    """`EvaluationTotals` repeats these figures of TRL's."""
    options: dict[str, Any] = {"num_eval_seeds": 4, "num_generations_eval": 2, "reward_weights": [1.0, 0.5]}
    trainer = recorder(tmp_path, lottery(draws=3), reward_funcs=[odd], scale_rewards=scale, **options)
    found = trainer.evaluate()
    (batch,) = trainer.batches
    logged = {name: value for name, (value,) in batch.items() if not name.endswith("seconds")}
    assert {"reward_std", "frac_reward_zero_std", "rewards/odd/std", "completions/min_terminated_length"} <= set(logged)
    assert {name: found[f"eval_{name}"] for name in logged} == pytest.approx(logged, rel=1e-4, nan_ok=True)


def test_rows_that_fill_up_the_last_batch_of_several_processes_do_not_count() -> None:
    """10 rows in batches of 4 on two processes: the second time there are 2 rows on the first and none on the other."""
    totals = EvaluationTotals(10)
    assert [totals.real(4, process) for process in (0, 1)] == [4, 4]
    totals.add_rewards(torch.tensor([[1.0]] * 2 + [[0.0]] * 6))
    totals.add_lengths(torch.tensor([3] * 8), torch.tensor([True] * 8))
    assert [totals.real(4, process) for process in (0, 1)] == [2, 0]
    totals.add_rewards(torch.tensor([[1.0]] * 8))
    totals.add_lengths(torch.tensor([5] * 2 + [100] * 6), torch.tensor([False] * 8))
    figures = totals.figures(["r"], torch.ones(1), 1, "group")
    assert figures["rewards/r/mean"] == figures["reward"] == pytest.approx(0.4)
    assert figures["completions/mean_length"] == pytest.approx(3.4)
    assert (figures["completions/max_length"], figures["completions/clipped_ratio"]) == (5.0, pytest.approx(0.2))


def test_losses_are_weighted_by_what_they_are_means_over() -> None:
    """3 over 4 rows of which 3 count: TRL divided by 4 (the fourth is masked); then 1 over 1."""
    totals = EvaluationTotals(4)
    totals.add_loss(3.0, counted=4, weight=3)
    totals.add_loss(1.0, counted=1, weight=1)
    totals.add_loss(7.0, counted=4, weight=0)
    assert totals.loss.tolist() == [13.0, 4.0]


def test_figures_by_hand() -> None:
    nan = float("nan")
    rewards = torch.tensor([[1.0, nan], [3.0, nan], [2.0, 4.0], [2.0, 4.0]], dtype=torch.float64)
    figures = reward_figures(rewards, ["a", "b"], torch.tensor([1.0, 0.5]), 2, "group")
    assert figures["rewards/a/mean"] == 2.0 and figures["rewards/b/mean"] == 4.0
    assert figures["reward"] == 3.0  # 1, 3, 4, 4
    assert figures["reward_std"] == pytest.approx(2**0.5)
    assert figures["frac_reward_zero_std"] == 0.5
    lengths = length_figures(torch.tensor([2.0, 4.0, 9.0]), torch.tensor([True, True, False]))
    assert lengths["completions/mean_terminated_length"] == 3.0 and lengths["completions/mean_length"] == 5.0


def test_evaluation_without_a_strategy(tmp_path: Path) -> None:
    """It used to ask for the ``eval_dataset`` that the constructor rejected."""
    trainer = recorder(tmp_path, lottery(), num_eval_seeds=3)
    found = trainer.evaluate()
    assert [one.seed for _, one in trainer.played] == [8000, 8001, 8002]
    assert found["eval_success"] == fmean(one.success for _, one in trainer.played)


def test_rows_are_played_in_their_own_environment(tmp_path: Path) -> None:
    """Also in one that the run does not train on; its figures do not change those of training."""
    rows = Dataset.from_list([{"env": LAKE, "seed": 3}, {"env": BANDIT, "seed": 4}, {"env": LAKE, "seed": 5}])
    trainer = recorder(tmp_path, BANDIT)
    found = trainer.evaluate(eval_dataset=rows)
    assert [(name, one.seed) for name, one in trainer.played] == [
        ("FrozenLake", 3), ("Bandit", 4), ("FrozenLake", 5),
    ]  # fmt: skip
    lake = fmean(one.episode_return for name, one in trainer.played if name == "FrozenLake")
    assert found["eval_FrozenLake-v0/return"] == pytest.approx(lake)
    trainer.train()
    assert not any("FrozenLake" in name for row in trainer.state.log_history[1:] for name in row)


def test_rows_of_a_run_are_played_again_with_its_arguments(tmp_path: Path) -> None:
    """Without a column for arguments a row means the run's environment; with one it says what is in it."""
    trainer = recorder(tmp_path, LAKE, env_kwargs={"size": 6}, num_eval_seeds=2)
    trainer.evaluate()
    own = [one for _, one in trainer.played]
    for rows in (trainer.eval_dataset, Dataset.from_list([{"env": LAKE, "seed": 8000}, {"env": LAKE, "seed": 8001}])):
        trainer.played.clear()
        trainer.evaluate(eval_dataset=rows)
        assert [one.turns[0].observation for _, one in trainer.played] == [one.turns[0].observation for one in own]
    trainer.played.clear()
    trainer.evaluate(eval_dataset=Dataset.from_list([{"env": LAKE, "seed": 8000, "kwargs": '{"size": 4}'}]))
    assert len(trainer.played[0][1].turns[0].observation) < len(own[0].turns[0].observation)


def test_rows_of_several_environments_come_back_to_their_own(tmp_path: Path) -> None:
    trainer = recorder(tmp_path, [EnvSpec(LAKE, {"size": 4}), EnvSpec(LAKE, {"size": 6}), BANDIT], num_eval_seeds=3)
    trainer.evaluate()
    first = [one.turns[0].observation for _, one in trainer.played]
    trainer.played.clear()
    trainer.evaluate(eval_dataset=trainer.eval_dataset)
    assert [one.turns[0].observation for _, one in trainer.played] == first
    with pytest.raises(StartStateError, match="row 0 of eval_dataset has env .*FrozenLake.*2 kinds of arguments; add"):
        trainer.evaluate(eval_dataset=Dataset.from_list([{"env": LAKE, "seed": 1}]))
    with pytest.raises(StartStateError, match="no column 'env', but the run plays"):
        trainer.evaluate(eval_dataset=Dataset.from_list([{"seed": 1}]))


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([{"env": LAKE}], StartStateError, "columns \\['env'\\]; give at least one row, with a column 'seed'"),
        ([{"env": "Nothing-v0", "seed": 1}], StartStateError, "row 0 of eval_dataset has env 'Nothing-v0'"),
        ([{"seed": 0.5}], StartStateError, "row 0 of eval_dataset has seed 0.5; a seed is an integer"),
        ([{"seed": 2_000_000_000}], SeedOverlapError, "seeds from 1000000000 on are those of warm-start play"),
        ([{"seed": 10_000}], SeedOverlapError, "row 0 of eval_dataset has seed 10000, on which the run trains"),
        ([{"seed": 1, "trajectory": 1}], StartStateError, "a column 'trajectory', which the trainer writes itself"),
    ],
)
def test_rows_that_are_no_start_states_are_refused(tmp_path: Path, rows: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        recorder(tmp_path, lottery(), eval_dataset=Dataset.from_list(rows))


def test_an_evaluation_of_trained_start_states_may_be_asked_for(tmp_path: Path) -> None:
    trainer = recorder(tmp_path, lottery())
    trainer.evaluate(eval_dataset=trainer.train_dataset.select(range(2)))
    assert [one.seed for _, one in trainer.played] == [10_000, 10_001]
    with pytest.raises(StartStateError, match="eval_dataset is \\[1\\]; pass a datasets.Dataset"):
        trainer.evaluate(eval_dataset=[1])  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["dict", "DatasetDict", "streams"])
def test_several_data_sets_are_told_apart(tmp_path: Path, kind: str) -> None:
    """TRL logs the figures of all of them under the same names."""
    rows = {"low": [{"seed": 1, "level": 1}], "high": [{"seed": 2, "level": 5}, {"seed": 3, "level": 6}]}
    given: Any = {name: Dataset.from_list(listed) for name, listed in rows.items()}
    if kind == "DatasetDict":
        given = DatasetDict(given)
    elif kind == "streams":
        given = {name: one.to_iterable_dataset() for name, one in given.items()}
        assert isinstance(given["low"], IterableDataset)
    by_level = lambda level, **_: [float(one) for one in level]  # noqa: E731
    trainer = recorder(
        tmp_path, None, eval_dataset={name: one.map(lambda _: {"env": BANDIT}) for name, one in given.items()},
        train_dataset=Dataset.from_list([{"env": BANDIT, "seed": 10_000 + i, "level": 0} for i in range(4)]),
        reward_funcs=[by_level], eval_strategy="steps", eval_steps=1, max_steps=1,
    )  # fmt: skip
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "eval_low_reward" in row]
    assert row["eval_low_rewards/<lambda>/mean"] == 1.0
    (row,) = [row for row in trainer.state.log_history if "eval_high_reward" in row]
    assert row["eval_high_rewards/<lambda>/mean"] == 5.5
    assert "eval_high_loss" in row


def rows_with_levels() -> Dataset:
    return Dataset.from_list([{"env": BANDIT, "seed": 10_000 + i, "level": i, "note": "x"} for i in range(4)])


def reads_level(level: list[int], **_: Any) -> list[float]:
    return [float(one) for one in level]


def reads_all(**columns: Any) -> list[float]:
    return [float(one) for one in columns["level"]]


def reads_none(completions: Any, **_: Any) -> list[float]:
    return [0.0] * len(completions)


def test_columns_that_a_reward_function_reads_are_needed_in_the_evaluation(tmp_path: Path) -> None:
    """They were missing only in the first evaluation, perhaps hours after the start."""
    options: dict[str, Any] = {"train_dataset": rows_with_levels(), "reward_funcs": [reads_level], "max_steps": 1}
    options |= {"eval_strategy": "steps", "eval_steps": 1}
    message = "reads_level reads level of train_dataset, .* pass an eval_dataset with seed and level"
    with pytest.raises(ArgumentError, match=message):
        recorder(tmp_path, None, **options)
    with pytest.raises(ArgumentError, match=message):
        recorder(tmp_path, None, **options, eval_dataset=Dataset.from_list([{"env": BANDIT, "seed": 1}]))


@pytest.mark.parametrize("function", [reads_level, reads_all])
def test_columns_of_the_evaluation_reach_reward_functions(tmp_path: Path, function: Any) -> None:
    own = Dataset.from_list([{"env": BANDIT, "seed": 1, "level": 2, "note": "y"}])
    options: dict[str, Any] = {"train_dataset": rows_with_levels(), "reward_funcs": [function], "max_steps": 1}
    trainer = recorder(tmp_path, None, **options, eval_strategy="steps", eval_steps=1, eval_dataset=own)
    trainer.train()
    (row,) = [row for row in trainer.state.log_history if "eval_reward" in row]
    assert row[f"eval_rewards/{function.__name__}/mean"] == 2.0


def test_a_function_that_may_read_columns_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nearly every function of TRL's users takes ``**kwargs``, and most read none of them."""
    options: dict[str, Any] = {"train_dataset": rows_with_levels(), "max_steps": 1, "eval_strategy": "steps"}
    recorder(tmp_path, None, **options, reward_funcs=[reads_all])
    assert "reads_all may read level, note of train_dataset, which the rows of the evaluation do not" in caplog.text
    caplog.clear()
    recorder(tmp_path, None, **options, reward_funcs=[reads_none])
    assert "may read" not in caplog.text


def test_own_rows_and_their_number_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="num_eval_seeds is 8, but the rows of eval_dataset decide that"):
        recorder(tmp_path, lottery(), num_eval_seeds=8, eval_dataset=Dataset.from_list([{"seed": 1}]))


def test_a_batch_that_cuts_groups_is_refused(tmp_path: Path) -> None:
    trainer = recorder(tmp_path, lottery(), num_generations_eval=3)
    with pytest.raises(ValueError, match="batch has 8 rows .* num_generations_eval 3 does not divide"):
        trainer.evaluate()


def test_persistent_workers_serve_the_rows_that_are_asked_for(tmp_path: Path) -> None:
    """Transformers keeps the loader of the first rows, and evaluated those again."""
    workers = {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}
    trainer = recorder(tmp_path, lottery(), num_eval_seeds=2, **workers)
    trainer.evaluate()
    trainer.evaluate(eval_dataset=Dataset.from_list([{"seed": 7}]))
    trainer.evaluate()
    assert [one.seed for _, one in trainer.played] == [8000, 8001, 7, 8000, 8001]
    assert "_eval_dataloaders" in vars(trainer)


def test_trl_writes_the_loss_and_takes_means_of_what_is_in_metrics() -> None:
    """What `TRLEvaluation` replaces exists: these names are in TRL's and Transformers' code."""
    names = GRPOTrainer.evaluation_loop.__code__.co_names
    assert "prediction_step" in names
    assert "_metrics" in GRPOTrainer.log.__code__.co_names
