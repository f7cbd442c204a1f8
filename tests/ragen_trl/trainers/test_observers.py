"""What observers are shown: every trajectory with the advantages of its sampled tokens. They change nothing."""

from pathlib import Path

import pytest
import torch

from ragen_trl.trainers.observers import Observation, observe
from tests.support.ragen_trl.trainers import experience_of, made_up, parameters, small_trainer

ONE, TWO = made_up((2, 1, 0.0), (1, 2, 1.0)), made_up((2, 2, 0.0))


class Watcher:
    """Keeps what it is shown."""

    def __init__(self) -> None:
        self.seen: list[Observation] = []

    def on_rollout(self, seen: Observation) -> None:
        self.seen.append(seen)


def test_one_advantage_a_trajectory_is_that_of_each_of_its_tokens() -> None:
    experience = experience_of([ONE, TWO, TWO, ONE], group_size=2)
    chosen = experience.select([1], 1)
    seen = observe(7, experience, [1], chosen, torch.tensor([0.5, -0.5]))
    assert seen.step == 7
    assert seen.kept == (1,)
    assert seen.advantages == (None, None, (0.5, 0.5), (-0.5, -0.5, -0.5))


def test_advantages_of_tokens_are_those_where_the_model_spoke() -> None:
    experience = experience_of([ONE, TWO], group_size=2)
    # Behind the first prompt ONE has a reply token, an environment token, two reply tokens.
    by_token = torch.tensor([[1.0, 9.0, 2.0, 3.0], [4.0, 5.0, 9.0, 9.0]])
    experience.batch["tool_mask"] = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1]])
    seen = observe(0, experience, [0], experience, by_token)
    assert seen.advantages == ((1.0, 2.0, 3.0), (4.0, 5.0))


def test_a_process_sees_its_own_trajectories() -> None:
    played = [ONE, TWO, TWO, ONE]
    experience = experience_of(played, group_size=2, processes=2, process=1)
    chosen = experience.select([0, 1], 1)
    seen = observe(0, experience, [0, 1], chosen, torch.tensor([1.0, 2.0, 3.0, 4.0]))
    assert seen.advantages == ((3.0, 3.0), (4.0, 4.0, 4.0))


def test_a_rollout_without_a_kept_group_is_shown_without_advantages() -> None:
    experience = experience_of([ONE, TWO], group_size=2)
    assert observe(0, experience, [], experience.select([], 1), None).advantages == (None, None)


@pytest.mark.parametrize("advantage", ["group", "gae"])
def test_a_trainer_shows_each_rollout_once_and_takes_the_same_steps(tmp_path: Path, advantage: str) -> None:
    options = {"advantage": advantage, "max_steps": 2}
    plain = small_trainer(tmp_path / "plain", **options)
    plain.train()
    watched, watcher = small_trainer(tmp_path / "watched", **options), Watcher()
    watched.observers.append(watcher)
    watched.train()
    assert [seen.step for seen in watcher.seen] == [0, 1]
    for seen in watcher.seen:
        lengths = [played.num_reply_tokens for played in seen.experience.trajectories]
        assert [len(found) for found in seen.advantages if found is not None] == lengths
    after = parameters(watched)
    for name, value in parameters(plain).items():
        torch.testing.assert_close(after[name], value, rtol=0, atol=0)
