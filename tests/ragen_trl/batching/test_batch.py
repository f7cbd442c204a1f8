"""Batches: padding on both sides, what TRL gets of a rollout, and the narrowing to the rows that are trained on."""

import json
from typing import Any

import pytest
import torch

from ragen_trl.batching.batch import collate, completion_columns, select_rows, to_rollout_output, trajectory_batch
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.project import VECTORS as VECTOR_FILE
from tests.support.ragen_trl.trainers import made_up

MASKS = json.loads(VECTOR_FILE.read_text())["masks"]
PAD = 99


def turn(
    prompt: tuple[int, ...], reply: tuple[int, ...], logprobs: tuple[float, ...] = (), reward: float = 0.0
) -> Turn:
    return Turn(prompt, reply, logprobs, observation="", reply="", reward=reward)


LONG = Trajectory((turn((1, 2), (3,), (-0.5,), 0.25), turn((4,), (5, 6), (-1.0, -2.0), 0.5)), seed=0)
SHORT = Trajectory((turn((7, 8, 9), (10,), (-3.0,), -0.1),), seed=1)
SCRIPTED = Trajectory((turn((7,), (8, 9)),), seed=2)


def test_right_padding_by_hand() -> None:
    batch = collate([LONG, SHORT], PAD)
    assert batch["input_ids"].tolist() == [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, PAD, PAD]]
    assert batch["attention_mask"].tolist() == [[1] * 6, [1] * 4 + [0, 0]]
    assert batch["action_mask"].tolist() == [[0, 0, 1, 0, 1, 1], [0, 0, 0, 1, 0, 0]]
    assert batch["turn_ids"].tolist() == [[-1, -1, 0, -1, 1, 1], [-1, -1, -1, 0, -1, -1]]
    assert batch["logprobs"].tolist() == [[0, 0, -0.5, 0, -1, -2], [0, 0, 0, -3, 0, 0]]


def test_nothing_to_collate_has_no_column() -> None:
    some = collate([LONG], PAD)
    assert {key: (value.shape, value.dtype) for key, value in collate([], PAD).items()} == {
        key: ((0, 0), value.dtype) for key, value in some.items()
    }


@pytest.mark.parametrize("case", MASKS, ids=lambda case: case["id"])
def test_masks_of_the_vectors(case: dict[str, Any]) -> None:
    turns, prompt = [], 0
    for role, length in case["inputs"]["segments"]:
        if role == "assistant":
            turns.append(turn((0,) * prompt, (1,) * length))
        prompt = 0 if role == "assistant" else prompt + length
    batch = collate([Trajectory(tuple(turns), seed=0)], PAD)
    expected = case["expected"]
    assert batch["action_mask"][0].tolist() == expected["action_mask"]
    assert batch["turn_ids"][0].tolist() == expected["turn_id"]
    # The logit that predicts a sampled token stands one place before it.
    assert (batch["action_mask"][0, 1:].nonzero()[:, 0]).tolist() == expected["logit_index_for_token"]


def test_rollout_output_splits_behind_the_first_prompt() -> None:
    assert to_rollout_output([LONG, SHORT, SCRIPTED]) == {
        "prompt_ids": [[1, 2], [7, 8, 9], [7]],
        "completion_ids": [[3, 4, 5, 6], [10], [8, 9]],
        "logprobs": [[-0.5, 0.0, -1.0, -2.0], [-3.0], [0.0, 0.0]],
        "env_mask": [[1, 0, 1, 1], [1], [1, 1]],
        "episode_return": [0.75, -0.1, 0.0],
        "trajectory": [LONG, SHORT, SCRIPTED],
    }


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
        "note": "kept as it is",
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


def test_ratios_of_whole_sequences_are_not_cut_and_scalars_pass() -> None:
    batch = select_rows(generation_batch(), [2, 1], size=2)
    assert batch["importance_sampling_ratio"].tolist() == [[1.5], [1.0]]
    assert batch["num_items_in_batch"].item() == 7
    assert batch["note"] == "kept as it is"


def test_filler_rows_are_seen_by_no_mask() -> None:
    batch = select_rows(generation_batch(), [1], size=3)
    assert batch["completion_ids"].tolist() == [[12]] * 3
    assert batch["completion_mask"].tolist() == [[1], [0], [0]]
    assert (batch["completion_mask"] * batch["tool_mask"]).sum().item() == 1


def test_filler_rows_change_nothing_in_the_batch_they_come_from() -> None:
    original = generation_batch()
    select_rows(original, [0], size=3)
    assert original["completion_mask"].tolist() == generation_batch()["completion_mask"].tolist()


def test_advantages_of_tokens_are_cut_like_the_tokens() -> None:
    """Regression: an estimator that returns (B, T) kept T columns while the completions lost some."""
    original = generation_batch() | {"advantages": torch.arange(12.0).reshape(3, 4)}
    batch = select_rows(original, [1, 2], size=2)
    assert batch["advantages"].tolist() == [[4, 5], [8, 9]]


def test_selecting_every_row_changes_nothing() -> None:
    original, batch = generation_batch(), select_rows(generation_batch(), [0, 1, 2], size=3)
    assert original.keys() == batch.keys()
    assert all(torch.equal(original[key], batch[key]) for key in original if isinstance(original[key], torch.Tensor))


def test_a_batch_of_trajectories_is_padded_as_trl_pads_by_hand() -> None:
    """Prompts on the left and completions on the right; ids with the padding token, ``tool_mask`` with 1."""
    batch = trajectory_batch([LONG, SHORT], PAD)
    assert batch["prompt_ids"].tolist() == [[PAD, 1, 2], [7, 8, 9]]
    assert batch["prompt_mask"].tolist() == [[0, 1, 1], [1, 1, 1]]
    assert batch["completion_ids"].tolist() == [[3, 4, 5, 6], [10, PAD, PAD, PAD]]
    assert batch["completion_mask"].tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert batch["tool_mask"].tolist() == [[1, 0, 1, 1], [1, 1, 1, 1]]
    assert batch["sampling_per_token_logps"].tolist() == [[-0.5, 0, -1, -2], [-3, 0, 0, 0]]


def test_no_trajectories_are_tensors_without_a_row() -> None:
    batch = trajectory_batch([], PAD)
    some = trajectory_batch([LONG], PAD)
    assert {key: (value.shape, value.dtype) for key, value in batch.items()} == {
        key: ((0, 1), value.dtype) for key, value in some.items()
    }


def test_completion_columns_agree_with_a_loop() -> None:
    """A completion begins after the first prompt; columns past a trajectory's end are 0, whatever stands there."""
    played = [made_up((2, 1, 0.0), (1, 3, 0.0)), made_up((4, 2, 0.0)), made_up((1, 1, 0.0), (1, 1, 0.0), (2, 1, 0.0))]
    width = max(len(trajectory.token_ids) for trajectory in played)
    values = torch.rand((3, width), generator=torch.Generator().manual_seed(0)) + 1.0
    for length in (6, 9):
        columns = completion_columns(values, played, length)
        for row, trajectory in enumerate(played):
            first = len(trajectory.turns[0].prompt_ids)
            for column in range(length):
                inside = first + column < len(trajectory.token_ids)
                assert columns[row, column] == (values[row, first + column] if inside else 0.0)


def test_completion_columns_are_those_of_the_rollouts_completions() -> None:
    """The ids themselves, taken through: what TRL pads."""
    batch = collate([LONG, SHORT, SCRIPTED], PAD)
    columns = completion_columns(batch["input_ids"], [LONG, SHORT, SCRIPTED], 4)
    completions = to_rollout_output([LONG, SHORT, SCRIPTED])["completion_ids"]
    assert columns.tolist() == [ids + [0] * (4 - len(ids)) for ids in completions]


@pytest.mark.parametrize("empty_first", [True, False])
def test_token_ids_stay_whole_numbers_beside_an_empty_reply(empty_first: bool) -> None:
    """An empty list alone is a tensor of floats, and the first row decided for all."""
    empty = Trajectory((turn((1, 2), ()),), seed=0, truncated=True)
    batch = trajectory_batch([empty, LONG] if empty_first else [LONG, empty], PAD)
    assert {name for name, values in batch.items() if values.dtype != torch.int64} == {"sampling_per_token_logps"}
    assert batch["completion_ids"].tolist()[0 if empty_first else 1] == [PAD] * 4
    assert trajectory_batch([empty], PAD)["completion_ids"].dtype == torch.int64
