"""Contexts that a function writes: what the model reads, what is trained, and what is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl.trajectory import Turn
from tests.support.ragen_trl.trainers import TOKENIZER, Spy, lottery, parameters, small_trainer


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def opening_alone(turns: Sequence[Turn], opening: str) -> list[dict[str, str]]:
    """The same as a window of one turn."""
    return user(opening)


def last_exchange(turns: Sequence[Turn], opening: str) -> list[dict[str, str]]:
    return [*user(f"Before: {len(turns)}"), {"role": "assistant", "content": turns[-1].reply}, *user(opening)]


def never(turns: Sequence[Turn], opening: str) -> None:
    return None


CALLS: list[tuple[int, bool]] = []


def watched(turns: Sequence[Turn], opening: str) -> list[dict[str, str]]:
    CALLS.append((len(turns), all(turn.reply and "actions" in turn.info for turn in turns)))
    return user(opening)


def trained(folder: Path, **options: Any) -> Any:
    options = {"max_steps": 2, "learning_rate": 1e-2, **options}
    trainer = small_trainer(folder, lottery(draws=4), trainer=Spy, **options)
    trainer.train()
    return trainer


@pytest.mark.parametrize(
    ("context", "window"), [(opening_alone, {"window_turns": 1}), (never, {})], ids=["one turn", "all turns"]
)
@pytest.mark.parametrize("advantage", ["group", "gae"])
def test_a_function_that_writes_what_a_window_holds_trains_the_same_bits(
    tmp_path: Path, context: Any, window: dict[str, Any], advantage: str
) -> None:
    written = trained(tmp_path / "written", context=context, advantage=advantage)
    windowed = trained(tmp_path / "window", **window, advantage=advantage)
    assert written.played == windowed.played
    assert all(torch.equal(value, parameters(windowed)[name]) for name, value in parameters(written).items())


def test_what_was_written_was_read_and_is_trained(tmp_path: Path) -> None:
    trainer = trained(tmp_path, context=last_exchange, advantage="bi_level_gae", filter_ratio=0.5)
    later = [turn for one in trainer.played for turn in one.turns[1:]]
    assert later and all(turn.context_ids is not None for turn in later)
    longest = max(trainer.played, key=lambda one: len(one.turns))
    text = TOKENIZER.decode((longest.turns[2].context_ids or ()) + longest.turns[2].prompt_ids)
    assert "Before: 2" in text and longest.turns[1].reply in text and "Say something." in text
    assert "Turn 3 of" in text and "Turn 2 of" not in text
    assert max(row["sampling/ratio_deviation_max"] for row in trainer.state.log_history[:1]) < 1e-3


def test_a_function_is_called_after_every_turn_but_the_last_and_after_a_limit(tmp_path: Path) -> None:
    """The contract in docs/your_own_trainer.md: never before the first reply, with the turns that were answered."""
    CALLS.clear()
    trainer: Any = small_trainer(tmp_path, lottery(draws=4, max_turns=2), trainer=Spy, context=watched, max_steps=1)
    trainer.train()
    ended = [(len(one.turns), one.truncated) for one in trainer.played]
    expected = [turns for last, limited in ended for turns in range(1, last + limited)]
    assert {limited for _, limited in ended} == {True, False}
    assert sorted(turns for turns, _ in CALLS) == sorted(expected)
    assert all(whole for _, whole in CALLS)
