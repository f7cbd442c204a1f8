"""What a rollout plays and how it is rewarded: several environments, data sets, refills, reward functions, failures."""

import math
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import gymnasium
import pytest
import torch
from datasets import Dataset

from ragen_trl.algorithms.advantages import group_advantages
from ragen_trl.errors import UserError
from ragen_trl.rollout.seeds import REFILL
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.equivalence import timeless
from tests.support.ragen_trl.trainers import (
    LAKE,
    AnyReply,
    Lottery,
    Spy,
    any_reply,
    contexts,
    logged,
    lottery,
    parameters,
    small_trainer,
)

BANDIT = "ragen/Bandit-v0"
RESUMED: dict[str, Any] = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2, "learning_rate": 1e-2}


def run(folder: Path, env: Any = None, **options: Any) -> Any:
    """Train on rollouts of 4 groups of 4."""
    trainer = small_trainer(folder, env, trainer=Spy, **{"per_device_train_batch_size": 16, **options})
    trainer.train()
    return trainer


def resumed_equals(unbroken: Any, env: Any, **options: Any) -> None:
    """A run that goes on from the second of four updates plays, logs and ends like this one."""
    folder = Path(unbroken.args.output_dir)
    resumed: Any = small_trainer(folder, env, trainer=Spy, per_device_train_batch_size=16, **options)
    resumed.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    assert 0 < len(resumed.rollouts) < len(unbroken.rollouts)
    assert resumed.rollouts == unbroken.rollouts[-len(resumed.rollouts) :]
    assert timeless(resumed)[2:4] == timeless(unbroken)[2:4]
    end = parameters(unbroken)
    assert all(torch.equal(value, end[name]) for name, value in parameters(resumed).items())


# Several environments


def cheap() -> AnyReply:
    return lottery(1.0)()


def dear() -> AnyReply:
    return lottery(1000.0)()


@pytest.mark.parametrize(("weights", "shares"), [(None, [2, 2]), ([3.0, 1.0], [3, 1])], ids=str)
def test_each_environment_has_its_share_of_groups_and_its_own_figures(
    tmp_path: Path, weights: Any, shares: list[int]
) -> None:
    options = {**RESUMED, "env_weights": weights, "num_train_seeds": weights and 5}
    trainer = run(tmp_path, [cheap, dear], **options)
    for step, played in enumerate(trainer.rollouts):
        wins = [env.win for env in trainer.envs[16 * step : 16 * step + 16]]
        firsts = range(0, 16, 4)
        assert all(len(set(wins[first : first + 4])) == 1 for first in firsts)
        assert all(len({one.turns[0].observation for one in played[first : first + 4]}) == 1 for first in firsts)
        assert [wins[::4].count(win) for win in (1.0, 1000.0)] == shares
        row = trainer.state.log_history[step]
        for name, win in (("cheap", 1.0), ("dear", 1000.0)):
            own = [one for one, of in zip(played, wins, strict=True) if of == win]
            assert row[f"{name}/success"] == pytest.approx(sum(one.success for one in own) / len(own))
            assert row[f"{name}/return"] == pytest.approx(sum(one.episode_return for one in own) / len(own))
        assert row["success"] == pytest.approx(sum(one.success for one in played) / 16)
    resumed_equals(trainer, [cheap, dear], **options)


def test_a_data_set_says_what_is_played_with_what_arguments_and_in_what_order(tmp_path: Path) -> None:
    rows = {
        "env": [LAKE, BANDIT, LAKE, LAKE, BANDIT, LAKE, LAKE, BANDIT],
        "seed": [20_001, 20_002, 20_003, 20_004, 20_005, 20_001, 20_007, 20_002],
        "kwargs": ['{"is_slippery": false}', "", "", '{"is_slippery": false}', "", "", "", ""],
        "level": [1, 2, 3, 4, 5, 6, 7, 8],
    }
    levels: list[int] = []

    def level(level: list[int], env: list[str], **_: Any) -> list[float]:
        levels.extend(level)
        assert env == [rows["env"][one - 1] for one in level]
        return [0.0] * len(level)

    trainer = run(tmp_path, train_dataset=Dataset.from_dict(rows), reward_funcs=[level], max_steps=2)
    assert [{one.seed for one in group} for group in trainer.groups()] == [{seed} for seed in rows["seed"]]
    envs = trainer.envs[::4]
    assert ["Bandit" in type(env).__name__ for env in envs] == [env == BANDIT for env in rows["env"]]
    assert [env for env in range(8) if rows["env"][env] == LAKE and "slippery" not in envs[env].instruction] == [0, 3]
    assert levels == [one for one in rows["level"] for _ in range(4)]
    named = [{key for key in row if key.endswith("/success")} for row in trainer.state.log_history[:2]]
    assert named == [{"FrozenLake-v0/success", "Bandit-v0/success"}] * 2  # not one for each `kwargs`


class Secret(gymnasium.Env[str, str]):
    """Say the word."""

    observation_space = action_space = gymnasium.spaces.Text(99)

    def __init__(self, length: int) -> None:
        self.length = length

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.options = options
        return "?", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return "!", 1.0, True, False, {}


def test_a_plain_environment_gets_all_columns_of_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gymnasium.envs.registration.EnvSpec("tests/Secret-v0", Secret)
    monkeypatch.setitem(gymnasium.registry, "tests/Secret-v0", spec)
    rows = {"env": ["tests/Secret-v0"] * 4, "seed": [20_001, 20_002, 20_003, 20_004], "word": [*"abcd"]}
    rows |= {"kwargs": [f'{{"length": {length}}}' for length in range(4)], "prompt": [*"efgh"]}
    options = {"max_steps": 1, "success_return": 1.0, "instruction": "Guess."}
    trainer = run(tmp_path, train_dataset=Dataset.from_dict(rows), **options)
    given = [env.options["word"] + env.options["prompt"] for env in trainer.envs]
    assert given == [row for row in ("ae", "bf", "cg", "dh") for _ in range(4)]
    assert all(one.turns[0].observation.startswith("Guess.") for one in trainer.played)
    assert {one.success for one in trainer.played if one.terminated} <= {True}


# Refills


class Dull(Lottery):
    """A lottery in which most tickets never win, whatever the outcome seed."""

    def _start(self, options: Any) -> str:
        self.win = float(self.np_random.random() < 0.25)
        return super()._start(options)


def dull() -> AnyReply:
    return any_reply(Dull(), 1)


def has_spread(group: list[Trajectory]) -> bool:
    return len({member.episode_return for member in group}) > 1


def test_rollouts_of_new_starts_are_added_until_enough_groups_have_spread(tmp_path: Path) -> None:
    """Half of 4 groups is wanted, and a quarter of the groups has spread; then a run that resumes."""
    options = {**RESUMED, "filter_ratio": 0.5, "max_refills": 20}
    trainer = run(tmp_path, dull, **options)
    groups, needed = iter(trainer.groups()), []
    for batch, row in zip(trainer.batches, trainer.state.log_history[:4], strict=True):
        own: list[list[Trajectory]] = []
        while sum(map(has_spread, own)) < 2:
            own += [next(groups) for _ in range(4)]
        needed.append(len(own) // 4)
        assert row["filter/trajectories_sampled"] == 4 * len(own)
        assert (row["filter/kept_groups"], row["filter/trajectories_used"]) == (2, 8)
        stds = [torch.tensor([one.episode_return for one in group]).std().item() for group in own]
        best = sorted(range(len(own)), key=lambda index: (-stds[index], index))[:2]
        assert contexts(batch) == sorted(member.token_ids for index in best for member in own[index])
    assert next(groups, None) is None  # not one rollout more
    assert max(needed) > 1
    seeds = [[group[0].seed for group in trainer.groups()][first : first + 4] for first in range(0, 4 * sum(needed), 4)]
    assert len({seed for rollout in seeds for seed in rollout}) == 4 * sum(needed)
    assert sum(max(rollout) < REFILL for rollout in seeds) == 4
    assert all(min(rollout) >= REFILL or max(rollout) < REFILL for rollout in seeds)
    resumed_equals(trainer, dull, **options)


@pytest.mark.parametrize(
    "schedule",
    [
        {"gradient_accumulation_steps": 2, "num_iterations": 2, "max_steps": 6},
        {"gradient_accumulation_steps": 1, "steps_per_generation": 2, "max_steps": 4},
    ],
)
def test_no_schedule_of_updates_repeats_a_refill_or_an_outcome(tmp_path: Path, schedule: dict[str, int]) -> None:
    trainer = run(tmp_path, lottery(win=0.0), max_refills=2, **schedule)
    seeds = [group[0].seed for group in trainer.groups()]
    assert len(set(seeds)) == len(seeds)
    assert sum(seed >= REFILL for seed in seeds) == 2 * len(seeds) // 3
    assert len({one.outcome_seed for one in trainer.played}) == len(trainer.played)
    assert trainer.batches == []  # nothing has spread: it gives up


def test_a_refill_from_a_fixed_set_plays_its_start_states_with_other_outcomes(tmp_path: Path) -> None:
    options = {"num_train_seeds": 8, "gradient_accumulation_steps": 1, "steps_per_generation": 2, "max_steps": 2}
    trainer = run(tmp_path, lottery(win=0.0), max_refills=2, **options)
    assert {one.seed for one in trainer.played} == {group[0].seed for group in trainer.groups()[:8]}
    assert len({one.outcome_seed for one in trainer.played}) == len(trainer.played)


# Reward functions


def by_seed(trajectory: list[Trajectory], **_: Any) -> list[float | None]:
    """Something for outcomes of odd seeds, nothing at all for the others."""
    return [0.25 * (one.outcome_seed % 7) if one.outcome_seed % 2 else None for one in trajectory]  # type: ignore[operator]


def test_rewards_are_added_up_and_then_normalised(tmp_path: Path) -> None:
    """2 · return + 3 · extra, normalised within groups; None is its group's mean. Functions see all."""
    seen: list[dict[str, Any]] = []

    def spy(**columns: Any) -> list[float | None]:
        seen.append(columns)
        return by_seed(columns["trajectory"])

    trainer = run(tmp_path, lottery(), reward_funcs=[spy], reward_weights=[2.0, 3.0], max_steps=1)
    (rollout,), (batch,), (columns,) = trainer.learnt, trainer.batches, seen
    extra = torch.tensor([math.nan if given is None else given for given in by_seed(rollout.trajectories)])
    means = extra.view(4, 4).nanmean(dim=1).repeat_interleave(4).nan_to_num(extra.nanmean().item())
    extra = torch.where(extra.isnan(), means, extra)
    environment = torch.tensor([one.episode_return for one in rollout.trajectories])
    assert extra.count_nonzero() > 0 and None in by_seed(rollout.trajectories)
    torch.testing.assert_close(rollout.returns, 2 * environment + 3 * extra)
    torch.testing.assert_close(trainer.credited[0], group_advantages(2 * environment + 3 * extra, 4))
    torch.testing.assert_close(batch["advantages"].sort().values, trainer.credited[0].sort().values)
    assert columns["trajectory"] == trainer.played and columns["seed"] == [one.seed for one in trainer.played]
    assert {"completions", "completion_ids", "trainer_state", "log_metric", "log_extra"} <= columns.keys()
    row = trainer.state.log_history[0]
    assert row["success"] == sum(one.success for one in trainer.played) / 16  # the environment's


async def later(trajectory: list[Trajectory], **_: Any) -> list[float]:
    return [math.nan] * len(trajectory)


@pytest.mark.parametrize("function", [later, partial(lambda trajectory, **_: [None, math.nan] * 8)])
def test_nan_from_a_reward_function_is_an_error_and_no_missing_score(tmp_path: Path, function: Any) -> None:
    with pytest.raises(UserError, match="function (later|<lambda>) returned nan for a trajectory of seed"):
        run(tmp_path, lottery(), reward_funcs=[function], max_steps=1)


# Environments that fail


class Fragile(Lottery):
    """Crashes in its second draw, or hangs there, from every third start state; ``always``: at once."""

    gate: Event | None = None
    always = False

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        if self.always or (self.drawn == 1 and int(self.ticket.split()[1]) % 3 == 0):
            if self.gate is None:
                raise OSError("the shop is on fire")
            self.gate.wait(60)
        observation, reward, _, info = super()._act(action)
        return observation, reward, self.drawn == self.draws, info

    def _start(self, options: Any) -> str:
        self.ticket = super()._start(options)
        return self.ticket


def fragile() -> AnyReply:
    return any_reply(Fragile(draws=3), 3)


def test_a_rollout_that_fails_altogether_ends_the_run_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bug in an environment must not be trained on for hours, with a warning at the top of the log."""
    monkeypatch.setattr(Fragile, "always", True)
    with pytest.raises(UserError, match="all 8 episodes failed in the environment (?s:.*)on fire"):
        small_trainer(tmp_path, fragile, max_steps=1).train()


@pytest.mark.parametrize(
    ("advantage", "limit"), [("group", "crash"), ("gigpo", "crash"), ("mt_grpo", "crash"), ("turn_gae", "timeout")]
)
def test_training_goes_on_among_environments_that_fail_and_learns_nothing_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Event, advantage: str, limit: str
) -> None:
    """Nothing is trained on of such an episode, and the others have the advantages that they have without it."""
    if limit == "timeout":
        monkeypatch.setattr(Fragile, "gate", gate)
    trainer = run(tmp_path, fragile, advantage=advantage, env_timeout=0.2 if limit == "timeout" else None)
    failed = [one for one in trainer.played if one.limit == limit]
    assert 0 < len(failed) < len(trainer.played) == 32
    assert {(len(one.turns), one.turns[-1].reward) for one in failed} == {(2, 0.0)}
    assert sum(logged(trainer, "rollout/env_failures")) == len(failed)
    assert all(map(math.isfinite, logged(trainer, "loss")))
    assert all(bool(value.isfinite().all()) for value in parameters(trainer).values())
    trained = {tuple(row) for batch in trainer.batches for row in contexts(batch)}
    assert not trained & {one.token_ids for one in failed}
    learnt, credited = trainer.learnt[0], trainer.credited[0]
    assert learnt.returns.isnan().tolist() == [summary.failed for summary in learnt.summaries]
    assert bool(credited.isfinite().all())
    if advantage == "group":
        for first in range(0, len(learnt.returns), 4):
            sound = ~learnt.returns[first : first + 4].isnan()
            if sound.sum() > 1:
                alone = group_advantages(learnt.returns[first : first + 4][sound], int(sound.sum()))
                torch.testing.assert_close(credited[first : first + 4][sound], alone)
            assert not credited[first : first + 4][~sound].any()
