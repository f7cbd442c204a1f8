"""Micro-batches of similar lengths: which row goes where, how little padding is left, and that the step is the same."""

import random
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import AStarPOTrainer, StarPOTrainer
from ragen_trl.batching.batch import select_rows
from ragen_trl.batching.loss_normalization import add_step_totals
from ragen_trl.batching.micro_batches import count_positions, packed, row_lengths, score_in_passes
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.equivalence import Awake, assert_same_step, played_in_turns, step
from tests.support.ragen_trl.trainers import generation_batch, lottery, made_up, small_model


def rows_of(batch: dict[str, Any]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Prompt and completion of each row without padding."""
    columns = (batch["prompt_ids"], batch["prompt_mask"], batch["completion_ids"], batch["completion_mask"])
    return [
        (tuple(prompt[shown.bool()].tolist()), tuple(completion[used.bool()].tolist()))
        for prompt, shown, completion, used in zip(*columns, strict=True)
    ]


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


def test_all_columns_of_a_row_move_together() -> None:
    rng = random.Random(0)
    played = [made_up(*[(rng.randint(1, 9), rng.randint(1, 9), 0.0) for _ in range(3)]) for _ in range(12)]
    batch = generation_batch(played) | {"advantages": torch.arange(12.0)}
    found = 0
    for part in packed(split(batch, 6), accumulation_steps=6, batch_size=2):
        for row, number in enumerate(part["advantages"].int().tolist()):
            turns = played[number].turns
            first = len(turns[0].prompt_ids)
            length = len(played[number].token_ids) - first
            assert rows_of(part)[row] == (turns[0].prompt_ids, played[number].token_ids[first:])
            assert part["tool_mask"][row, :length].tolist() == list(played[number].action_mask[first:])
            logprobs = part["sampling_per_token_logps"][row, : len(turns[0].reply_ids)]
            assert logprobs.tolist() == pytest.approx(list(turns[0].logprobs))
            found += 1
    assert found == 12


@pytest.mark.parametrize(("parts", "accumulation"), [(6, 6), (6, 3), (6, 1), (3, 6)])
def test_rows_stay_in_their_update(parts: int, accumulation: int) -> None:
    played = [made_up((1, length, 0.0)) for length in random.Random(1).sample(range(1, 40), 12)]
    dealt = split(generation_batch(played), parts)
    regrouped = packed(dealt, accumulation, batch_size=12 // parts)
    size = min(parts, accumulation)
    for first in range(0, parts, size):
        before, after = (
            sorted(row for part in some[first : first + size] for row in rows_of(part)) for some in (dealt, regrouped)
        )
        assert before == after
        lengths = [row_lengths(part).tolist() for part in regrouped[first : first + size]]
        assert sum(lengths, []) == sorted(sum(lengths, []))


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


def test_the_rest_is_spread_over_micro_batches_instead_of_filler() -> None:
    """Six rows in passes of up to four: three and three, and not four and two with two of filler."""
    assert completions(packed(split(kept_rows(6, 8), 4), 4, 4)) == [[0], [0], [2, 3, 4], [5, 6, 7]]


@pytest.mark.parametrize(("kept", "expected"), [(0, [0, 0, 0]), (1, [1, 0, 0]), (7, [3, 2, 2]), (12, [4, 4, 4])])
def test_every_step_on_a_rollout_gets_its_share_of_what_was_kept(kept: int, expected: list[int]) -> None:
    """Three steps of two micro-batches: filler does not decide how many trajectories make a step."""
    parts = packed(split(kept_rows(kept, 12), 6), accumulation_steps=2, batch_size=2)
    assert len(parts) == 6
    steps = [completions(parts[first : first + 2]) for first in (0, 2, 4)]
    assert [sum(length > 0 for part in of_step for length in part) for of_step in steps] == expected
    assert sorted(length for of_step in steps for part in of_step for length in part if length) == list(
        range(2, 2 + kept)
    )


def test_more_rows_than_fit_make_larger_micro_batches() -> None:
    """Contexts that were rebuilt are rows of their own: 20 rows in 4 micro-batches that were to hold 2 each."""
    assert [len(part) for part in completions(packed(split(kept_rows(20, 20), 4), 4, 2))] == [5, 5, 5, 5]


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


def test_filler_comes_first_and_holds_no_column() -> None:
    """Another process has three rows, this one two, the longest first."""
    played = [made_up((4, 30, 0.0)), made_up((1, 2, 0.0))]
    dealt = split(select_rows(generation_batch(played), [0, 1], 3), 3)
    parts = packed(dealt, 3, 2, 0, lambda _: torch.tensor([2, 3]))
    assert [row_lengths(part).tolist() for part in parts] == [[0], [0, 3], [34]]
    shapes = [(part["prompt_ids"].shape[1], part["completion_ids"].shape[1]) for part in parts]
    assert shapes == [(1, 1), (1, 2), (4, 30)]
    assert all(bool(part["prompt_mask"].any(dim=1).all()) for part in parts)  # attention needs something to look at


def five_turns(rng: random.Random) -> Trajectory:
    """Log-normal replies around 60 tokens, log-normal observations around 40, episodes of one to five turns."""
    turns = min(5, 1 + int(rng.expovariate(0.3)))
    shown = [150 + rng.randint(0, 40), *[max(1, int(rng.lognormvariate(3.7, 0.4))) for _ in range(turns - 1)]]
    return made_up(*[(number, max(1, int(rng.lognormvariate(4.1, 0.6))), 0.0) for number in shown])


@pytest.mark.parametrize("rows", [32, 64, 128])
@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_less_than_a_fifth_of_what_is_computed_is_padding(rows: int, size: int) -> None:
    rng = random.Random(rows + size)
    dealt = split(generation_batch([five_turns(rng) for _ in range(rows)]), rows // size)

    def padding(parts: list[dict[str, Any]]) -> float:
        add_step_totals(parts, len(parts), 1, lambda local: local)
        tokens, _, positions = count_positions(parts).tolist()
        return float(1 - tokens / positions)

    assert padding(dealt) > 0.35  # as TRL splits it
    assert padding(packed(dealt, len(dealt), size)) < (1e-9 if size == 1 else 0.2)


@pytest.mark.parametrize("batch_size", [1, 3, 20])
def test_scoring_in_passes_of_like_lengths_gives_what_every_row_gets_alone(batch_size: int) -> None:
    """And no pass is wider than its longest prompt and completion."""
    rng = random.Random(3)
    batch = generation_batch([made_up(*[(2, 3, 0.0)] * rng.randint(1, 5)) for _ in range(10)])
    model = small_model()
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    attention = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    width = batch["completion_ids"].shape[1]
    passes: list[tuple[int, int]] = []

    def score(rows: torch.Tensor, span: slice, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        some, mask = ids[rows, span], attention[rows, span]
        passes.append((len(some), some.shape[1]))
        assert columns == int(mask[:, -columns:].sum(dim=1).max())
        with torch.no_grad():
            logprobs = model(input_ids=some, attention_mask=mask).logits[:, -columns - 1 : -1].log_softmax(dim=-1)
        entropies = -(logprobs.exp() * logprobs).sum(dim=-1)
        chosen = logprobs.gather(-1, some[:, -columns:, None]).squeeze(-1)
        return chosen * mask[:, -columns:], entropies * mask[:, -columns:]

    order = torch.argsort(attention.sum(dim=1))
    logprobs, entropies = score_in_passes(score, attention, width, order.split(batch_size))
    assert entropies is not None
    assert [count for count, _ in passes] == [min(batch_size, 10 - first) for first in range(0, 10, batch_size)]
    assert [length for _, length in passes] == sorted(length for _, length in passes)
    for row in range(10):
        used = attention[row].nonzero().flatten()
        count = int(batch["completion_mask"][row].sum())
        alone = score(torch.tensor([row]), slice(int(used[0]), int(used[-1]) + 1), count)
        for found, expected in zip((logprobs, entropies), alone, strict=True):
            torch.testing.assert_close(found[row, :count], expected[0], rtol=1e-4, atol=1e-5)
            assert not found[row, count:].any()


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


LOSSES = ["grpo", "dapo", "dr_grpo", "cispo", "sapo", "luspo", "vespo"]
CASES: dict[str, dict[str, Any]] = {
    **{f"{name}": {"loss_type": name} for name in LOSSES},
    "cispo": {"loss_type": "cispo", "epsilon_high": 5.0},
    # Advantages per token, with and without a critic. Micro-batches see no other difference between estimators.
    **{advantage: {"advantage": advantage, "loss_type": "dapo"} for advantage in ("gae", "gigpo")},
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
    options = {"advantage": "group", "filter_ratio": 0.7, "gradient_accumulation_steps": 12, **CASES[name]}
    count = options.pop("gradient_accumulation_steps")
    advantage = options.pop("advantage")
    if "beta" in options:
        options["model"] = saved_model(tmp_path)
    steps = []
    for trainer in (as_dealt(Dealt), Dealt):
        made = played_in_turns(tmp_path, advantage, 2, count, trainer=trainer, **options)
        steps.append(step(made))
        paddings = [row["rollout/padding"] for row in made.state.log_history if "rollout/padding" in row]
        assert all(value < 0.2 for value in paddings) == (trainer is Dealt)
    assert_same_step(*steps)


@pytest.mark.parametrize("changes", [{"loss_type": "bnpo"}, {"top_entropy_quantile": 0.5}])
def test_what_is_a_mean_of_each_micro_batch_keeps_the_ones_it_was_dealt(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    """Sorted by length they would be other means: the step is that of TRL's micro-batches, cut."""
    steps = [
        step(played_in_turns(tmp_path, "group", 4, 6, trainer=trainer, **changes))
        for trainer in (as_dealt(Dealt), Dealt)
    ]
    assert_same_step(*steps)


@pytest.mark.parametrize("changes", [{}, {"num_generations": 4, "filter_ratio": 0.7, "kl_coef": 0.1}])
def test_astar_po_takes_the_step_of_the_micro_batches_as_they_were_dealt(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    options: dict[str, Any] = {"optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0, "max_steps": 2, "beta2": 0.1}
    size = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    steps = []
    for number, trainer in enumerate((as_dealt(AStarPOTrainer), AStarPOTrainer)):
        folder = tmp_path / str(number)
        steps.append(step(astar(folder, lottery(draws=3), trainer=trainer, **options, **size, **changes)))
    assert_same_step(*steps)


@pytest.mark.parametrize("size", [1, 4])
def test_means_over_tokens_are_logged_as_if_the_update_were_one_batch(tmp_path: Path, size: int) -> None:
    """Regression: a mean over micro-batches of like lengths weighs the tokens of short trajectories more."""
    options: dict[str, Any] = {"beta": 0.1, "filter_ratio": 0.4, "max_steps": 2, "num_iterations": 2}
    options |= {"learning_rate": 0.5}
    rows = [
        played_in_turns(tmp_path, "group", batch, 24 // batch, model=saved_model(tmp_path), **options)
        for batch in (24, size)
    ]
    for trainer in rows:
        trainer.train()
    for update in (0, 1):
        whole, parts = (trainer.state.log_history[update] for trainer in rows)
        for name in ("entropy", "kl", "clip_ratio/region_mean"):
            assert parts[name] == pytest.approx(whole[name], rel=1e-3, abs=1e-6), name
    assert whole["clip_ratio/region_mean"] > 0 and whole["kl"] > 0


class Counted(StarPOTrainer):
    """Counts the micro-batches that are computed."""

    computed = 0

    def policy_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        self.computed += 1
        return super().policy_loss(model, inputs)


def test_a_filter_leaves_fewer_micro_batches_and_not_smaller_ones(tmp_path: Path) -> None:
    """Regression: a third of 24 rows in six micro-batches was computed in six passes of one or two rows."""
    trainer = played_in_turns(tmp_path, "group", 4, 6, trainer=Counted, filter_ratio=0.4)
    trainer.train()
    assert trainer.state.log_history[0]["filter/trajectories_used"] == 8
    assert trainer.computed == 2  # type: ignore[attr-defined]


def test_trajectories_one_by_one_have_no_padding(tmp_path: Path) -> None:
    alone = played_in_turns(tmp_path, "group", 1, 24, trainer=Counted)
    alone.train()
    assert alone.computed == 24  # type: ignore[attr-defined]
    assert alone.state.log_history[0]["rollout/padding"] == 0
