"""Micro-batches of similar lengths: which row goes where, how little padding is left, and that the step is the same."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl.batching.batch import select_rows
from ragen_trl.batching.loss_normalization import add_step_totals
from ragen_trl.batching.micro_batches import count_positions, packed
from tests.support.ragen_trl.equivalence import Awake, assert_same_step, played_in_turns, step
from tests.support.ragen_trl.trainers import generation_batch, made_up, small_model


def split(batch: dict[str, Any], parts: int) -> list[dict[str, Any]]:
    """As TRL does: equal parts, as wide as the whole."""
    size = len(batch["completion_ids"]) // parts
    return [
        {
            key: value[first : first + size] if isinstance(value, torch.Tensor) and value.ndim else value
            for key, value in batch.items()
        }
        for first in range(0, parts * size, size)
    ]


def test_a_steps_rows_are_sorted_and_every_part_is_cut_to_its_longest_by_hand() -> None:
    """Prompts of 1 and completions of 5, 2, 9, 3 | 4, 1, 1, 8 tokens: two steps of two micro-batches of two."""
    played = [made_up((1, length, 0.0)) for length in (5, 2, 9, 3, 4, 1, 1, 8)]
    batch = generation_batch(played) | {"advantages": torch.arange(8.0)}
    parts = packed(split(batch, 4), accumulation_steps=2, batch_size=2)
    assert [part["completion_mask"].sum(dim=1).tolist() for part in parts] == [[2, 3], [5, 9], [1, 1], [4, 8]]
    assert [part["advantages"].tolist() for part in parts] == [[1, 3], [0, 2], [5, 6], [4, 7]]
    for part, width in zip(parts, (3, 9, 1, 8), strict=True):
        for key in ("completion_ids", "completion_mask", "tool_mask", "sampling_per_token_logps"):
            assert part[key].shape == (2, width)
        assert part["prompt_ids"].shape == part["prompt_mask"].shape == (2, 1)
        assert part["num_items_in_batch"].item() == 0  # one number for all rows passes as it is


def kept_rows(count: int, rows: int) -> dict[str, Any]:
    """A rollout of which rows with completions of 2, 3, … tokens were kept, and filler."""
    played = [made_up((1, 2 + place, 0.0)) for place in range(max(1, count))]
    return select_rows(generation_batch(played), range(count), rows)


def completions(parts: list[dict[str, Any]]) -> list[list[int]]:
    return [part["completion_mask"].sum(dim=1).tolist() for part in parts]


def test_kept_rows_fill_micro_batches_and_the_others_are_empty_by_hand() -> None:
    """A quarter of 32 rows in 8 micro-batches of 4: two full ones instead of eight of one row."""
    parts = packed(split(kept_rows(8, 8), 8), accumulation_steps=8, batch_size=4)
    assert completions(parts) == [[0]] * 6 + [[2, 3, 4, 5], [6, 7, 8, 9]]
    assert [part["completion_ids"].shape for part in parts] == [(1, 1)] * 6 + [(4, 5), (4, 9)]
    add_step_totals(parts, 8, 1, lambda local: local)
    assert [bool(part["empty"]) for part in parts] == [True] * 6 + [False] * 2
    tokens, _, positions = count_positions(parts).tolist()
    assert (tokens, positions) == (sum(range(2, 10)) + 8, 4 * 6 + 4 * 10)  # empty ones are not computed


@pytest.mark.parametrize(("counts", "accumulation"), [((7, 8), 6), ((7, 8), 3), ((0, 5), 6), ((3, 3), 3), ((0, 0), 6)])
def test_processes_with_unequal_rows_compute_micro_batches_of_one_size(
    counts: tuple[int, int], accumulation: int
) -> None:
    """Losses gather over rows. All steps together get equally many trajectories, whichever process has them."""
    gathered = torch.tensor(counts)
    both = [
        packed(split(kept_rows(count, 12), 6), accumulation, 2, rank, lambda _: gathered)
        for rank, count in enumerate(counts)
    ]
    assert [len(part["prompt_ids"]) for part in both[0]] == [len(part["prompt_ids"]) for part in both[1]]
    sizes = []
    for first in range(0, 6, accumulation):
        here = [parts[first : first + accumulation] for parts in both]
        sizes.append(sum(length > 0 for parts in here for row in completions(parts) for length in row))
        assert all(len(row) <= 2 for parts in here for row in completions(parts))
        filled = [any(map(any, pair)) for pair in zip(*map(completions, here), strict=True)]
        assert filled == sorted(filled)  # the last one, where gradients are exchanged, is empty only if all are
    assert sum(sizes) == sum(counts) and max(sizes) - min(sizes) <= 1


def saved_model(folder: Path) -> str:
    """The small model as files, from which TRL loads a reference."""
    small_model().save_pretrained(folder / "model")
    return str(folder / "model")


def as_dealt(trainer: type[Any]) -> type[Any]:
    """The same trainer on TRL's own micro-batches, whose rows share nothing."""

    class AsDealt(trainer):  # type: ignore[misc]
        def _can_share_prefixes(self) -> bool:
            return False

        def _regroup(self, micro_batches: Any) -> Any:
            return micro_batches

    return AsDealt


CASES: dict[str, dict[str, Any]] = {
    **{name: {"loss_type": name} for name in ("dapo", "sapo", "luspo", "vespo")},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    # Advantages per token. Micro-batches see no other difference between estimators.
    "gae": {"advantage": "gae", "loss_type": "dapo"},
    "sequence": {"importance_sampling_level": "sequence"},
    "reference": {"beta": 0.5},
    "two updates": {"steps_per_generation": 12, "gradient_accumulation_steps": 6, "max_steps": 2, "learning_rate": 0.1},
}


class Dealt(Awake):
    """Deals out what TRL deals out at random in one order."""

    def _learn_from(self, rollout: Any, kept: Any) -> Any:
        batch = super()._learn_from(rollout, kept)
        torch.manual_seed(0)
        return batch


@pytest.mark.filterwarnings("ignore:.*luspo.*:UserWarning", "ignore:.*importance_sampling_level.*:UserWarning")
@pytest.mark.parametrize("name", CASES)
def test_the_step_is_that_of_the_micro_batches_as_they_were_dealt(tmp_path: Path, name: str) -> None:
    options = {"filter_ratio": 0.7, **CASES[name]}
    count, advantage = options.pop("gradient_accumulation_steps", 12), options.pop("advantage", "group")
    if "beta" in options:
        options["model"] = saved_model(tmp_path)
    steps = []
    for trainer in (as_dealt(Dealt), Dealt):
        made = played_in_turns(tmp_path, advantage, 2, count, trainer=trainer, **options)
        steps.append(step(made))
        paddings = [row["rollout/padding"] for row in made.state.log_history if "rollout/padding" in row]
        assert all(value < 0.2 for value in paddings) == (trainer is Dealt)
    assert_same_step(*steps)
