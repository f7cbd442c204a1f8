"""One run, several environments: who plays what, who is compared with whom, and what is reported of each."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset

from ragen_trl import EnvSpec, StarPOTrainer
from ragen_trl.rollout.env_specs import EnvSpecError
from ragen_trl.rollout.seeds import StartStateError
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import AnyReply, Lottery, lottery, small_trainer

LAKE, BANDIT = "ragen/FrozenLake-v0", "ragen/Bandit-v0"


def cheap() -> AnyReply:
    return lottery_of(1.0)


def dear() -> AnyReply:
    return lottery_of(1000.0)


def lottery_of(win: float) -> AnyReply:
    return AnyReply(Lottery(win), think=False, max_turns=1, max_actions=1, max_actions_per_turn=1)


def slips(env: Any) -> bool:
    return "slippery" in env.instruction


class Spy(StarPOTrainer):
    """Keeps what was played, in what, and what was trained on."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.played: list[tuple[Any, Trajectory]] = []
        self.learnt: list[Any] = []
        super().__init__(*args, **kwargs)

    def rollout(self, starts: Any, envs: Any, policy: Any) -> Any:
        trajectories = super().rollout(starts, envs, policy)
        assert len({id(env.unwrapped) for env in envs}) == len(envs)  # none is shared
        self.played += zip([env.unwrapped for env in envs], trajectories, strict=True)
        return trajectories

    def advantages(self, rollout: Any) -> torch.Tensor:
        self.learnt.append(rollout)
        return super().advantages(rollout)


def run(folder: Path, env: Any, **options: Any) -> Any:
    """Rollouts of 4 groups of 4."""
    trainer = small_trainer(folder, env, trainer=Spy, **{"per_device_train_batch_size": 16, **options})
    trainer.train()
    return trainer


def groups(trainer: Any) -> list[list[tuple[Any, Trajectory]]]:
    return [trainer.played[first : first + 4] for first in range(0, len(trainer.played), 4)]


@pytest.fixture(scope="module", params=[(None, [2, 2]), ([3.0, 1.0], [3, 1]), ([1.0, 3.0], [1, 3])], ids=str)
def weighted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, list[int]]:
    """Three updates on both lotteries with given weights, and the groups of each that these make; three tests read it.

    Do not change it.
    """
    weights, shares = request.param
    return run(tmp_path_factory.mktemp("weighted"), [cheap, dear], env_weights=weights, max_steps=3), shares


def test_a_group_is_played_in_one_environment_from_one_start(weighted: tuple[Any, list[int]]) -> None:
    trainer, _ = weighted
    for group in groups(trainer):
        assert len({env.win for env, _ in group}) == 1
        assert len({trajectory.seed for _, trajectory in group}) == 1
        assert len({trajectory.turns[0].observation for _, trajectory in group}) == 1
    for rollout in trainer.learnt:
        names = [summary.env for summary in rollout.summaries]
        assert all(len(set(names[first : first + 4])) == 1 for first in range(0, 16, 4))
        paid = [{"cheap": 1.0, "dear": 1000.0}[name] for name in names]
        assert all(value in (0.0, wins) for value, wins in zip(rollout.returns.tolist(), paid, strict=True))


def test_every_rollout_has_its_environments_by_weight(weighted: tuple[Any, list[int]]) -> None:
    trainer, shares = weighted
    wins = [group[0][0].win for group in groups(trainer)]
    for first in (0, 4, 8):
        rollout = wins[first : first + 4]
        assert [rollout.count(1.0), rollout.count(1000.0)] == shares


def test_each_environment_is_reported_separately(weighted: tuple[Any, list[int]]) -> None:
    trainer, _ = weighted
    for step, row in enumerate(trainer.state.log_history[:3]):
        played = trainer.played[16 * step : 16 * step + 16]
        for name, win in (("cheap", 1.0), ("dear", 1000.0)):
            own = [trajectory for env, trajectory in played if env.win == win]
            assert row[f"{name}/success"] == pytest.approx(sum(one.success for one in own) / len(own))
            assert row[f"{name}/return"] == pytest.approx(sum(one.episode_return for one in own) / len(own))
        assert row["success"] == pytest.approx(sum(one.success for _, one in played) / 16)
        assert not any(key.endswith("/episodes") for key in row)


def test_one_environment_is_not_reported_twice(tmp_path: Path) -> None:
    row = run(tmp_path, cheap, max_steps=1).state.log_history[0]
    assert "success" in row
    assert "cheap/success" not in row


def test_the_filter_works_in_each_environment(tmp_path: Path) -> None:
    """Half of the groups of each: otherwise the dear lottery, with a thousand times the spread, took every place."""
    trainer = run(tmp_path, [cheap, dear], filter_ratio=0.5, max_steps=3)
    assert [sorted(rollout.group_tasks) for rollout in trainer.learnt] == [[0, 1]] * 3
    assert [row["filter/kept_groups"] for row in trainer.state.log_history[:3]] == [2, 2, 2]


def test_the_filter_tells_environments_of_one_name_apart(tmp_path: Path) -> None:
    """Regression: two functions of one name were one environment to it, and the dear lottery took every place."""
    trainer = run(tmp_path, [lottery(1.0), lottery(1000.0)], filter_ratio=0.5, max_steps=3)
    names = {summary.env for rollout in trainer.learnt for summary in rollout.summaries}
    assert names == {"<lambda>#0", "<lambda>#1"}
    assert [sorted(rollout.group_tasks) for rollout in trainer.learnt] == [[0, 1]] * 3


def test_normalised_by_group_all_environments_weigh_the_same(tmp_path: Path) -> None:
    seen: list[torch.Tensor] = []

    class Kept(Spy):
        def advantages(self, rollout: Any) -> torch.Tensor:
            seen.append(super().advantages(rollout))
            return seen[-1]

    trainer = small_trainer(tmp_path, [cheap, dear], trainer=Kept, per_device_train_batch_size=16, max_steps=1)
    trainer.train()
    (advantages,) = seen
    (rollout,) = trainer.learnt  # type: ignore[attr-defined]
    largest = {
        name: advantages[[summary.env == name for summary in rollout.summaries]].abs().max().item()
        for name in ("cheap", "dear")
    }
    assert largest["cheap"] == pytest.approx(largest["dear"], rel=0.8)
    assert max(largest.values()) < 2


def test_refills_keep_to_the_environments(tmp_path: Path) -> None:
    def never() -> AnyReply:
        return lottery_of(0.0)

    trainer = run(tmp_path, [cheap, never], env_weights=[3.0, 1.0], max_refills=1, max_steps=1)
    assert len(trainer.played) == 32
    wins = [group[0][0].win for group in groups(trainer)]
    assert sorted(wins[:4]) == sorted(wins[4:]) == [0.0, 1.0, 1.0, 1.0]


def test_enough_groups_need_no_refill_in_unequal_shares(tmp_path: Path) -> None:
    """Regression: 0.75 of 2 and 2 groups were rounded down to 1 and 1, and all refills were played for a third."""
    trainer = run(tmp_path, [cheap, dear], filter_ratio=0.75, max_refills=2, max_steps=1, num_generations=4, seed=2)
    spread = [len({one.episode_return for _, one in group}) > 1 for group in groups(trainer)]
    assert all(spread[:4])  # with this seed
    assert len(trainer.played) == 16


def test_the_same_environment_with_other_arguments_is_another(tmp_path: Path) -> None:
    slippery, dry = EnvSpec(LAKE, {"is_slippery": True}), EnvSpec(LAKE, {"is_slippery": False})
    trainer = run(tmp_path, [slippery, dry], max_steps=1)
    kinds = [{slips(env) for env, _ in group} for group in groups(trainer)]
    assert all(len(kind) == 1 for kind in kinds)
    assert sorted(next(iter(kind)) for kind in kinds) == [False, False, True, True]
    assert {summary.task for summary in trainer.learnt[0].summaries} == {0, 1}
    with pytest.raises(EnvSpecError, match="listed 2 times"):
        run(tmp_path, [dry, EnvSpec(LAKE, {"is_slippery": False})])


ROWS = {
    "env": [LAKE, BANDIT, LAKE, LAKE, BANDIT, LAKE, LAKE, BANDIT],
    "seed": [20_001, 20_002, 20_003, 20_004, 20_005, 20_001, 20_007, 20_002],
    "kwargs": ['{"is_slippery": false}', "", "", '{"is_slippery": false}', "", "", "", ""],
    "level": [1, 2, 3, 4, 5, 6, 7, 8],
}


def test_a_data_set_says_what_is_played_with_what_arguments_and_in_what_order(tmp_path: Path) -> None:
    levels: list[list[int]] = []

    def level(level: list[int], env: list[str], **_: Any) -> list[float]:
        levels.append(level)
        assert env == [ROWS["env"][one - 1] for one in level]
        return [0.0] * len(level)

    trainer = run(tmp_path, None, train_dataset=Dataset.from_dict(ROWS), reward_funcs=[level], max_steps=2)
    found = groups(trainer)
    assert [group[0][1].seed for group in found] == ROWS["seed"]
    assert all(len({trajectory.seed for _, trajectory in group}) == 1 for group in found)
    kinds = [type(group[0][0]).__name__ for group in found]
    assert [kind == "Bandit" for kind in kinds] == [env == BANDIT for env in ROWS["env"]]
    dry = [place for place, group in enumerate(found) if kinds[place] != "Bandit" and not slips(group[0][0])]
    assert dry == [0, 3]
    assert levels == [[1] * 4 + [2] * 4 + [3] * 4 + [4] * 4, [5] * 4 + [6] * 4 + [7] * 4 + [8] * 4]


def test_an_environment_that_a_rollout_does_not_have_is_not_reported_for_it(tmp_path: Path) -> None:
    """The second rollout of this data set is all lakes."""
    rows = {"env": [LAKE, LAKE, BANDIT, BANDIT, LAKE, LAKE, LAKE, LAKE], "seed": list(range(20_000, 20_008))}
    trainer = run(tmp_path, None, train_dataset=Dataset.from_dict(rows), max_steps=2)
    first, second = trainer.state.log_history[:2]
    assert "Bandit-v0/success" in first
    assert "Bandit-v0/success" not in second
    assert "FrozenLake-v0/success" in second


def test_a_data_set_replaces_the_environment(tmp_path: Path) -> None:
    with pytest.raises(EnvSpecError, match="both of env and train_dataset"):
        run(tmp_path, LAKE, train_dataset=Dataset.from_dict(ROWS))
    with pytest.raises(EnvSpecError, match="neither of env and train_dataset"):
        run(tmp_path, None)
    with pytest.raises(StartStateError, match="env_weights"):
        run(tmp_path, [cheap, dear], env_weights=[1.0])


def test_environments_take_turns_in_the_evaluation(tmp_path: Path) -> None:
    trainer = run(tmp_path, [cheap, dear], eval_strategy="steps", eval_steps=1, num_eval_seeds=16, max_steps=1)
    evaluated = [(env.win, one) for env, one in trainer.played if one.seed < 10_000]
    assert [win for win, _ in evaluated].count(1.0) == 8
    (row,) = [row for row in trainer.state.log_history if "eval_success" in row]
    own = [one.success for win, one in evaluated if win == 1000.0]
    assert row["eval_dear/success"] == pytest.approx(sum(own) / 8)


def test_a_run_with_several_environments_resumes_where_it_stopped(tmp_path: Path) -> None:
    options: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2}
    unbroken = run(tmp_path, [cheap, dear], **options)
    resumed: Any = small_trainer(tmp_path, [cheap, dear], trainer=Spy, per_device_train_batch_size=16, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))
    assert [one for _, one in resumed.played] == [one for _, one in unbroken.played[32:]]
