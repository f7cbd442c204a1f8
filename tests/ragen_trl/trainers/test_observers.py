"""What observers are shown: every trajectory with the advantages of its sampled tokens. They change nothing."""

from pathlib import Path

import pytest
import torch

from ragen_trl.trainers.observers import RolloutEvent, observe
from tests.support.ragen_trl.trainers import made_up, parameters, rollout_of, small_trainer

ONE, TWO = made_up((2, 1, 0.0), (1, 2, 1.0)), made_up((2, 2, 0.0))


class Watcher:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.event: list[RolloutEvent] = []

    def on_rollout(self, event: RolloutEvent) -> None:
        self.event.append(event)


def test_one_advantage_a_trajectory_is_that_of_each_of_its_tokens() -> None:
    rollout = rollout_of([ONE, TWO, TWO, ONE], group_size=2)
    chosen = rollout.select([1])
    event = observe(7, rollout, [1], chosen, torch.tensor([0.5, -0.5]), list)
    assert event.step == 7
    assert event.kept == (1,)
    assert event.advantages == (None, None, (0.5, 0.5), (-0.5, -0.5, -0.5))


def test_advantages_of_tokens_are_those_where_the_model_spoke() -> None:
    rollout = rollout_of([ONE, TWO], group_size=2)
    # After the first prompt ONE has a reply token, an environment token, two reply tokens.
    by_token = torch.tensor([[1.0, 9.0, 2.0, 3.0], [4.0, 5.0, 9.0, 9.0]])
    rollout.batch["tool_mask"] = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1]])
    event = observe(0, rollout, [0], rollout, by_token, list)
    assert event.advantages == ((1.0, 2.0, 3.0), (4.0, 5.0))


def test_a_process_sees_its_own_trajectories() -> None:
    played = [ONE, TWO, TWO, ONE]
    rollout = rollout_of(played, group_size=2, processes=2, process=1)
    chosen = rollout.select([0, 1])
    event = observe(0, rollout, [0, 1], chosen, torch.tensor([1.0, 2.0, 3.0, 4.0]), list)
    assert event.advantages == ((3.0, 3.0), (4.0, 4.0, 4.0))


def test_advantages_of_tokens_come_back_to_the_process_that_played() -> None:
    """The second process played groups 2 and 3; group 2 alone is kept, and its second trajectory moves."""
    played = [ONE, TWO, TWO, ONE, TWO, ONE, TWO, TWO]
    rollout = rollout_of(played, group_size=2, processes=2, process=1)
    assert len(rollout.trajectories) == 4
    kept = rollout.select([2])
    here = kept.balanced(2, list)
    assert (kept.ranks, here.ranks, here.trajectories) == ((1, 1), (1, 0), [TWO])
    both = [(7.0, 8.0, 9.0), (1.0, 2.0)]  # process by process: ONE on the first, TWO on the second
    event = observe(0, rollout, [2], here, torch.tensor([[1.0, 2.0]]), lambda mine: [both[0], *mine])
    assert event.advantages == ((1.0, 2.0), (7.0, 8.0, 9.0), None, None)


def test_a_rollout_without_a_kept_group_is_shown_without_advantages() -> None:
    rollout = rollout_of([ONE, TWO], group_size=2)
    assert observe(0, rollout, [], rollout.select([]), None, list).advantages == (None, None)


@pytest.mark.parametrize("advantage", ["group", "gae"])
def test_a_trainer_shows_each_rollout_once_and_takes_the_same_steps(tmp_path: Path, advantage: str) -> None:
    options = {"advantage": advantage, "max_steps": 2}
    plain = small_trainer(tmp_path / "plain", **options)
    plain.train()
    watched, watcher = small_trainer(tmp_path / "watched", **options), Watcher()
    watched.observers.append(watcher)
    watched.train()
    assert [event.step for event in watcher.event] == [0, 1]
    for event in watcher.event:
        lengths = [played.num_reply_tokens for played in event.rollout.trajectories]
        assert [len(found) for found in event.advantages if found is not None] == lengths
    after = parameters(watched)
    for name, value in parameters(plain).items():
        torch.testing.assert_close(after[name], value, rtol=0, atol=0)
