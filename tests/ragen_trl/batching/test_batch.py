"""Batches: padding on both sides, what TRL gets of a rollout, which rows are trained; contexts of the last turns."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from ragen_trl.batching.batch import segment_batch, segment_rows, select_rows, trajectory_batch
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import generation_batch, made_up

PAD = 99


LONG, SHORT = made_up((2, 1, 0.25), (1, 2, 0.5)), made_up((3, 1, -0.1))


def three_rows() -> dict[str, Any]:
    """Three rows as TRL pads them: prompts on the left (lengths 1, 3, 2), completions on the right (4, 1, 2)."""
    prompts, completions = (1, 3, 2), (4, 1, 2)
    return {
        "prompt_ids": torch.tensor([[0] * (3 - n) + [10 * row + 1] * n for row, n in enumerate(prompts)]),
        "prompt_mask": torch.tensor([[0] * (3 - n) + [1] * n for n in prompts]),
        "completion_ids": torch.tensor([[10 * row + 2] * n + [0] * (4 - n) for row, n in enumerate(completions)]),
        "completion_mask": torch.tensor([[1] * n + [0] * (4 - n) for n in completions]),
        "tool_mask": torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]),
        "old_per_token_logps": -torch.arange(12.0).reshape(3, 4),
        "advantages": torch.tensor([1.0, 2.0, 3.0]),
    }


def test_selected_rows_are_cut_to_their_longest() -> None:
    batch = select_rows(three_rows(), [0, 2], size=2)
    assert batch["prompt_ids"].tolist() == [[0, 1], [21, 21]]
    assert batch["prompt_mask"].tolist() == [[0, 1], [1, 1]]
    assert batch["completion_ids"].tolist() == [[2] * 4, [22, 22, 0, 0]]
    assert batch["advantages"].tolist() == [1.0, 3.0]
    shorter = select_rows(three_rows(), [1, 2], size=2)
    assert shorter["completion_ids"].tolist() == [[12, 0], [22, 22]]
    assert shorter["tool_mask"].shape == shorter["completion_mask"].shape == (2, 2)
    assert shorter["old_per_token_logps"].tolist() == [[-4, -5], [-8, -9]]


def test_a_batch_of_trajectories_is_padded_as_trl_pads_by_hand() -> None:
    """Prompts on the left and completions on the right; ids with the padding token, ``tool_mask`` with 1."""
    batch = trajectory_batch([LONG, SHORT], PAD)
    assert batch["prompt_ids"].tolist() == [[PAD, 1, 2], [1, 2, 3]]
    assert batch["prompt_mask"].tolist() == [[0, 1, 1], [1, 1, 1]]
    assert batch["completion_ids"].tolist() == [[3, 4, 5, 6], [4, PAD, PAD, PAD]]
    assert batch["completion_mask"].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert batch["tool_mask"].tolist() == [[1, 0, 1, 1], [1, 1, 1, 1]]
    expected = torch.tensor([[-0.03, 0, -0.05, -0.06], [-0.04, 0, 0, 0]])
    torch.testing.assert_close(batch["sampling_per_token_logps"], expected)


@pytest.mark.parametrize("empty_first", [True, False])
def test_token_ids_stay_whole_numbers_beside_an_empty_reply(empty_first: bool) -> None:
    """An empty list alone is a tensor of floats, and the first row decided for all."""
    empty = made_up((2, 0, 0.0))
    batch = trajectory_batch([empty, LONG] if empty_first else [LONG, empty], PAD)
    assert {name for name, values in batch.items() if values.dtype != torch.int64} == {"sampling_per_token_logps"}
    assert batch["completion_ids"].tolist()[0 if empty_first else 1] == [PAD] * 4
    assert trajectory_batch([empty], PAD)["completion_ids"].dtype == torch.int64


# Contexts of the last turns: what is read, which rows are trained and how they are weighed


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
