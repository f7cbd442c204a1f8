"""Contexts of the last turns: what is read, which rows are trained and how they are weighed."""

from dataclasses import replace

import pytest
import torch

from ragen_trl.batching.batch import segment_batch, segment_rows, select_rows
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import generation_batch, made_up


def rebuilt(*contexts: tuple[int, ...] | None) -> Trajectory:
    """Three turns of (2, 3), (1, 1) and (2, 1) tokens, numbered 1 to 10, with these contexts from the second on."""
    played = made_up((2, 3, 0.0), (1, 1, 0.5), (2, 1, 1.0))
    turns = [replace(turn, context_ids=ids) for turn, ids in zip(played.turns, (None, *contexts), strict=True)]
    return replace(played, turns=tuple(turns))


def test_segments_by_hand() -> None:
    first, second = rebuilt((90, 91), None).segments
    assert first.token_ids == (1, 2, 3, 4, 5)
    assert second.token_ids == (90, 91, 6, 7, 8, 9, 10)
    assert second.action_mask == (0, 0, 0, 1, 0, 0, 1)
    assert [len(one.turns) for one in (first, second)] == [1, 2]
    first, second = rebuilt(None, ()).segments  # a context that begins with the message itself
    assert (first.token_ids, second.token_ids) == ((1, 2, 3, 4, 5, 6, 7), (8, 9, 10))


def test_rows_of_segments_by_hand() -> None:
    """Five sampled tokens in rows of 3 and 2, and a trajectory in one row."""
    whole = made_up((1, 2, 0.0))
    batch = segment_batch([rebuilt((90, 91), None), whole], pad_id=0)
    assert batch["prompt_ids"].tolist() == [[0, 1, 2], [90, 91, 6], [0, 0, 1]]
    assert batch["prompt_mask"].tolist() == [[0, 1, 1], [1, 1, 1], [0, 0, 1]]
    assert batch["completion_ids"].tolist() == [[3, 4, 5, 0], [7, 8, 9, 10], [2, 3, 0, 0]]
    mask = batch["completion_mask"] * batch["tool_mask"]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0]]
    assert batch["sampling_per_token_logps"][1].tolist() == pytest.approx([-0.07, 0, 0, -0.1])
    assert batch["trajectory_share"].tolist() == pytest.approx([0.6, 0.4, 1.0])


def test_a_segment_has_the_advantages_of_its_own_tokens() -> None:
    played = [rebuilt((90, 91), None), made_up((1, 2, 0.0))]
    whole = generation_batch(played)
    mask = whole["completion_mask"] * whole["tool_mask"]
    by_token = torch.arange(1.0, 1 + mask.numel()).reshape(mask.shape) * mask
    batch = segment_rows(played, by_token, mask, pad_id=0)
    used = (batch["completion_mask"] * batch["tool_mask"]).bool()
    assert batch["advantages"][used].tolist() == by_token[mask.bool()].tolist()
    assert not batch["advantages"][:3][~used[:3]].any()
    one_each = select_rows(segment_rows(played, torch.tensor([3.0, -1.0]), mask, pad_id=0), range(3), size=4)
    assert one_each["advantages"][:3].tolist() == [3.0, 3.0, -1.0]
    assert one_each["trajectory_share"].tolist() == pytest.approx([0.6, 0.4, 1.0, 0.0])
    assert one_each["completion_mask"][3].tolist() == [0, 0, 0, 0]
