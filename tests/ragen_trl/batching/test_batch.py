"""Batches: padding on both sides, what TRL gets of a rollout, and the narrowing to the rows that are trained on."""

from typing import Any

import pytest
import torch

from ragen_trl.batching.batch import select_rows, trajectory_batch
from ragen_trl.trajectory import Trajectory, Turn

PAD = 99


def turn(
    prompt: tuple[int, ...], reply: tuple[int, ...], logprobs: tuple[float, ...] = (), reward: float = 0.0
) -> Turn:
    return Turn(prompt, reply, logprobs, observation="", reply="", reward=reward)


LONG = Trajectory((turn((1, 2), (3,), (-0.5,), 0.25), turn((4,), (5, 6), (-1.0, -2.0), 0.5)), seed=0)
SHORT = Trajectory((turn((7, 8, 9), (10,), (-3.0,), -0.1),), seed=1)


def generation_batch() -> dict[str, Any]:
    """Three rows as TRL pads them: prompts on the left (lengths 1, 3, 2), completions on the right (4, 1, 2)."""
    prompts, completions = (1, 3, 2), (4, 1, 2)
    return {
        "prompt_ids": torch.tensor([[0] * (3 - n) + [10 * row + 1] * n for row, n in enumerate(prompts)]),
        "prompt_mask": torch.tensor([[0] * (3 - n) + [1] * n for n in prompts]),
        "completion_ids": torch.tensor([[10 * row + 2] * n + [0] * (4 - n) for row, n in enumerate(completions)]),
        "completion_mask": torch.tensor([[1] * n + [0] * (4 - n) for n in completions]),
        "tool_mask": torch.tensor([[1, 0, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]),
        "old_per_token_logps": -torch.arange(12.0).reshape(3, 4),
        "importance_sampling_ratio": torch.tensor([[0.5], [1.0], [1.5]]),
        "advantages": torch.tensor([1.0, 2.0, 3.0]),
        "num_items_in_batch": torch.tensor(7),
    }


def test_selected_rows_are_cut_to_their_longest() -> None:
    batch = select_rows(generation_batch(), [0, 2], size=2)
    assert batch["prompt_ids"].tolist() == [[0, 1], [21, 21]]
    assert batch["prompt_mask"].tolist() == [[0, 1], [1, 1]]
    assert batch["completion_ids"].tolist() == [[2] * 4, [22, 22, 0, 0]]
    assert batch["advantages"].tolist() == [1.0, 3.0]
    shorter = select_rows(generation_batch(), [1, 2], size=2)
    assert shorter["completion_ids"].tolist() == [[12, 0], [22, 22]]
    assert shorter["tool_mask"].shape == shorter["completion_mask"].shape == (2, 2)
    assert shorter["old_per_token_logps"].tolist() == [[-4, -5], [-8, -9]]
    assert shorter["importance_sampling_ratio"].tolist() == [[1.0], [1.5]]  # of whole sequences
    assert shorter["num_items_in_batch"].item() == 7


def test_filler_rows_are_seen_by_no_mask() -> None:
    batch = select_rows(generation_batch(), [1], size=3)
    assert batch["completion_ids"].tolist() == [[12]] * 3
    assert batch["completion_mask"].tolist() == [[1], [0], [0]]
    assert (batch["completion_mask"] * batch["tool_mask"]).sum().item() == 1


def test_a_batch_of_trajectories_is_padded_as_trl_pads_by_hand() -> None:
    """Prompts on the left and completions on the right; ids with the padding token, ``tool_mask`` with 1."""
    batch = trajectory_batch([LONG, SHORT], PAD)
    assert batch["prompt_ids"].tolist() == [[PAD, 1, 2], [7, 8, 9]]
    assert batch["prompt_mask"].tolist() == [[0, 1, 1], [1, 1, 1]]
    assert batch["completion_ids"].tolist() == [[3, 4, 5, 6], [10, PAD, PAD, PAD]]
    assert batch["completion_mask"].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert batch["tool_mask"].tolist() == [[1, 0, 1, 1], [1, 1, 1, 1]]
    assert batch["sampling_per_token_logps"].tolist() == [[-0.5, 0, -1, -2], [-3, 0, 0, 0]]


@pytest.mark.parametrize("empty_first", [True, False])
def test_token_ids_stay_whole_numbers_beside_an_empty_reply(empty_first: bool) -> None:
    """An empty list alone is a tensor of floats, and the first row decided for all."""
    empty = Trajectory((turn((1, 2), ()),), seed=0, truncated=True)
    batch = trajectory_batch([empty, LONG] if empty_first else [LONG, empty], PAD)
    assert {name for name, values in batch.items() if values.dtype != torch.int64} == {"sampling_per_token_logps"}
    assert batch["completion_ids"].tolist()[0 if empty_first else 1] == [PAD] * 4
    assert trajectory_batch([empty], PAD)["completion_ids"].dtype == torch.int64
