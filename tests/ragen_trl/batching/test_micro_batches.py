"""Micro-batches of similar lengths: which row goes where, how little padding is left, and that the step is the same."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import trainer as trainer_module
from ragen_trl.batching.batch import select_rows
from ragen_trl.batching.micro_batches import add_step_totals, micro_batches
from ragen_trl.training import scoring
from tests.support.ragen_trl.equivalence import Awake, assert_same_step, played_in_turns, step
from tests.support.ragen_trl.trainers import generation_batch, made_up


def test_a_steps_rows_are_sorted_and_every_part_is_cut_to_its_longest_by_hand() -> None:
    """Prompts of 1 and completions of 5, 2, 9, 3 | 4, 1, 1, 8 tokens: two steps of two micro-batches of two."""
    played = [made_up((1, length, 0.0)) for length in (5, 2, 9, 3, 4, 1, 1, 8)]
    batch = generation_batch(played) | {"advantages": torch.arange(8.0)}
    parts = micro_batches(batch, 4, accumulation_steps=2, batch_size=2)
    assert [part["completion_mask"].sum(dim=1).tolist() for part in parts] == [[2, 3], [5, 9], [1, 1], [4, 8]]
    assert [part["advantages"].tolist() for part in parts] == [[1, 3], [0, 2], [5, 6], [4, 7]]
    for part, width in zip(parts, (3, 9, 1, 8), strict=True):
        for key in ("completion_ids", "completion_mask", "tool_mask", "sampling_per_token_logps"):
            assert part[key].shape == (2, width)
        assert part["prompt_ids"].shape == part["prompt_mask"].shape == (2, 1)


def kept_rows(count: int, rows: int) -> dict[str, Any]:
    """A rollout of which rows with completions of 2, 3, … tokens were kept, and filler."""
    played = [made_up((1, 2 + place, 0.0)) for place in range(max(1, count))]
    return select_rows(generation_batch(played), range(count), rows)


def completions(parts: list[dict[str, Any]]) -> list[list[int]]:
    return [part["completion_mask"].sum(dim=1).tolist() for part in parts]


def test_kept_rows_fill_micro_batches_and_the_others_are_empty_by_hand() -> None:
    """A quarter of 32 rows in 8 micro-batches of 4: two full ones instead of eight of one row."""
    parts = micro_batches(kept_rows(8, 8), 8, accumulation_steps=8, batch_size=4)
    assert completions(parts) == [[0]] * 6 + [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert [part["completion_ids"].shape for part in parts] == [(1, 1)] * 6 + [(4, 5), (4, 9)]
    add_step_totals(parts, 8, 1, lambda local: local)
    assert [bool(part["empty"]) for part in parts] == [True] * 6 + [False] * 2


@pytest.mark.parametrize(("counts", "accumulation"), [((7, 8), 6), ((7, 8), 3), ((0, 5), 6), ((3, 3), 3), ((0, 0), 6)])
def test_processes_with_unequal_rows_compute_micro_batches_of_one_size(
    counts: tuple[int, int], accumulation: int
) -> None:
    """Losses gather over rows. The steps of each process get equally many trajectories."""
    updates = 6 // accumulation
    of_updates = torch.tensor([len(part) for count in counts for part in torch.arange(count).tensor_split(updates)])
    both = [micro_batches(kept_rows(count, 12), 6, accumulation, 2, lambda _: of_updates) for count in counts]
    assert [len(part["prompt_ids"]) for part in both[0]] == [len(part["prompt_ids"]) for part in both[1]]
    sizes = []
    for first in range(0, 6, accumulation):
        here = [parts[first : first + accumulation] for parts in both]
        sizes.append([sum(length > 0 for row in completions(parts) for length in row) for parts in here])
        assert all(len(row) <= 2 for parts in here for row in completions(parts))
        filled = [any(map(any, pair)) for pair in zip(*map(completions, here), strict=True)]
        assert filled == sorted(filled)  # the last one, where gradients are exchanged, is empty only if all are
    for count, of_process in zip(counts, zip(*sizes, strict=True), strict=True):
        assert sum(of_process) == count and max(of_process) - min(of_process) <= 1


CASES: dict[str, dict[str, Any]] = {
    "dapo": {"loss_type": "dapo"},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    # Advantages per token. Micro-batches see no other difference between estimators.
    "gae": {"advantage": "gae", "loss_type": "dapo"},
    "sequence": {"importance_sampling_level": "sequence"},
    "reference": {"beta": 0.5},
    "two updates": {"steps_per_generation": 12, "gradient_accumulation_steps": 6, "max_steps": 2, "learning_rate": 0.1},
}


def in_one(batch: Any, count: int, accumulation_steps: int, *_: Any) -> list[dict[str, Any]]:
    """All rows of an update in one micro-batch, as they were dealt; they share nothing."""
    return micro_batches(batch, count, accumulation_steps, 1000)


@pytest.mark.parametrize("name", CASES)
def test_the_step_does_not_depend_on_micro_batches_and_what_rows_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    options = {"filter_ratio": 0.7, **CASES[name]}
    count, advantage = options.pop("gradient_accumulation_steps", 12), options.pop("advantage", "group")
    steps = []
    for whole in (True, False):
        if whole:
            monkeypatch.setattr(trainer_module, "micro_batches", in_one)
            monkeypatch.setattr(scoring, "can_share_prefixes", lambda *_: False)
        made = played_in_turns(tmp_path, advantage, 2, count, trainer=Awake, **options)
        steps.append(step(made))
        monkeypatch.undo()
    assert_same_step(*steps)
