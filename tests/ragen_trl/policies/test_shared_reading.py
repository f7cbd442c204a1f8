"""What several contexts begin with is read once, and every row answers as if it had read it alone."""


import numpy as np
import pytest

from ragen_trl.policies import transformers as transformers_policy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.shared_reading import common_beginnings
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.cached_models import CHAT, CONFIGS, model_of, passes_of, starts
from tests.support.ragen_trl.fake_envs import Quiz


def test_no_choice_of_one_level_saves_more() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        rows = [tuple(random.integers(2, size=random.integers(1, 9)).tolist()) for _ in range(random.integers(1, 12))]
        new, known = rows[:7], rows[7:]
        found = common_beginnings(new, known, 3)
        indices = [index for one in found for index in one.new]
        assert len(set(indices)) == len(indices)
        for one in found:
            members = [new[index] for index in one.new] + ([] if one.known is None else [known[one.known]])
            assert len({ids[: one.length] for ids in members}) == 1
            assert all(len(new[index]) > one.length for index in one.new)
        gain = sum(one.saved - (3 if one.known is None else 0) for one in found)
        for length in range(1, 9):  # everything that shares exactly so much
            alike: dict[tuple[int, ...], int] = {}
            for ids in new:
                if len(ids) > length:
                    alike[ids[:length]] = alike.get(ids[:length], 0) + 1
            read = {ids[:length] for ids in known if len(ids) >= length}
            assert gain >= sum(
                max(0, length * count if key in read else length * (count - 1) - 3) for key, count in alike.items()
            )


class Other(Quiz):
    """Another environment: its first message begins otherwise."""

    def _question(self) -> str:
        return "another game " + super()._question()


@pytest.mark.parametrize("size", [None, 3])
@pytest.mark.parametrize("architecture", CONFIGS)
def test_replies_are_those_of_rows_that_read_everything_themselves(
    architecture: str, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(architecture)
    monkeypatch.setattr(transformers_policy, "_tokens_of_a_pass", lambda model: 20)
    played, read = [], []
    for share in (lambda new, known, pass_tokens: [], common_beginnings):
        monkeypatch.setattr(transformers_policy, "common_beginnings", share)
        envs = [(Quiz if row % 3 else Other)(1 + row % 2, padding=60 + 3 * (row // 2)) for row in range(9)]
        with passes_of(model) as shapes:
            policy = TransformersPolicy(model, CHAT, Sampling(max_tokens=6))
            played.append(play(envs, policy, starts(len(envs)), batch_size=size))
        read.append(sum(shape.numel() for shape in shapes if shape[1] > 1))
    for one, other in zip(*played, strict=True):
        assert one.token_ids == other.token_ids
        for turn, again in zip(one.turns, other.turns, strict=True):
            assert turn.logprobs == pytest.approx(again.logprobs, abs=1e-4)
    assert read[1] < 0.8 * read[0]  # in second turns nothing is shared


def test_the_instruction_is_read_once_and_also_for_rows_that_begin_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_policy, "_tokens_of_a_pass", lambda model: 20)
    envs = [Quiz(1, padding=60 + row) for row in range(6)]
    policy = TransformersPolicy(model_of("qwen2"), CHAT, Sampling(max_tokens=3))
    with passes_of(policy.model) as shapes:
        trajectories = play(envs, policy, starts(6))
    longest = max(len(row.turns[0].prompt_ids) for row in trajectories)
    (alone, width), rest = shapes[0], shapes[1]
    assert alone == 1 and width > 60 and rest == (6, longest - width)
    with passes_of(policy.model) as shapes:
        again = play(envs, policy, starts(6), batch_size=2)
    assert [row.token_ids for row in again] == [row.token_ids for row in trajectories]
    prompts = [shape for shape in shapes if shape[1] > 1]
    assert sum(shape[1] > 50 for shape in prompts) < len(prompts) - 1
