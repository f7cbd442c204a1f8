"""Contexts that a function writes: what the model reads, what is trained, and what is refused."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOTrainer
from ragen_trl.errors import OptionError
from ragen_trl.rollout.contexts import ContextError, SlidingWindow, WrittenContext, actions_so_far
from ragen_trl.system.functions import FunctionNameError
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.astar_runs import Spy, astar
from tests.support.ragen_trl.equivalence import with_adapter
from tests.support.ragen_trl.trainers import TOKENIZER, lottery, parameters, small_trainer


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def opening_alone(turns: Sequence[Turn], opening: str) -> list[dict[str, str]]:
    """The same as a window of one turn."""
    return user(opening)


def last_exchange(turns: Sequence[Turn], opening: str) -> list[dict[str, str]]:
    return [*user(f"Before: {len(turns)}"), {"role": "assistant", "content": turns[-1].reply}, *user(opening)]


def never(turns: Sequence[Turn], opening: str) -> None:
    return None


def every_other(turns: Sequence[Turn], opening: str) -> list[dict[str, str]] | None:
    return user(opening) if len(turns) % 2 == 0 else None


CALLS: list[tuple[int, bool]] = []


def watched(turns: Sequence[Turn], opening: str) -> list[dict[str, str]]:
    CALLS.append((len(turns), all(turn.reply and "actions" in turn.info for turn in turns)))
    return user(opening)


def broken(turns: Sequence[Turn], opening: str) -> list[dict[str, str]]:
    return user(turns[-1].info["nope"])


class Kept(StarPOTrainer):
    def rollout(self, starts: Any, envs: Any, policy: Any) -> list[Trajectory]:
        self.kept: list[Trajectory] = super().rollout(starts, envs, policy)
        return self.kept


def trained(folder: Path, **options: Any) -> Any:
    options = {"max_steps": 2, "learning_rate": 1e-2, **options}
    trainer = small_trainer(folder, lottery(draws=4), trainer=Kept, **options)
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
    assert written.kept == windowed.kept
    assert all(torch.equal(value, parameters(windowed)[name]) for name, value in parameters(written).items())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"loss_type": "dapo", "beta": 0.1},
        {"importance_sampling_level": "sequence", "num_iterations": 2},
        {"advantage": "bi_level_gae", "filter_ratio": 0.5},
        {"advantage": "gigpo"},
    ],
)
def test_what_was_written_was_read_and_is_trained(tmp_path: Path, options: dict[str, Any]) -> None:
    model = with_adapter() if "beta" in options else None  # without which there is no reference in memory
    trainer = trained(tmp_path, context=last_exchange, model=model, **options)
    later = [turn for one in trainer.kept for turn in one.turns[1:]]
    assert later and all(turn.context_ids == () for turn in later)
    longest = max(trainer.kept, key=lambda one: len(one.turns))
    text = TOKENIZER.decode(longest.turns[2].prompt_ids)
    assert "Before: 2" in text and longest.turns[1].reply in text and "Say something." in text
    assert "Turn 3 of" in text and "Turn 2 of" not in text
    assert max(row["sampling/ratio_deviation_max"] for row in trainer.state.log_history[:1]) < 1e-3


def test_a_context_may_be_rebuilt_at_some_turns_and_grow_at_others(tmp_path: Path) -> None:
    trainer = trained(tmp_path, context=every_other)
    longest = max(trainer.kept, key=lambda one: len(one.turns))
    assert [turn.context_ids is None for turn in longest.turns] == [True, True, False, True]
    assert [len(segment.turns) for segment in longest.segments] == [2, 2]


def test_a_function_is_called_after_every_turn_but_the_last_and_after_a_limit(tmp_path: Path) -> None:
    """The contract in docs/rollouts.md: never before the first reply, with the turns that were answered."""
    CALLS.clear()
    trainer = small_trainer(tmp_path, lottery(draws=4, max_turns=2), trainer=Kept, context=watched, max_steps=1)
    trainer.train()
    ended = [(len(one.turns), one.truncated) for one in trainer.kept]
    expected = [turns for last, limited in ended for turns in range(1, last + limited)]
    assert {limited for _, limited in ended} == {True, False}
    assert sorted(turns for turns, _ in CALLS) == sorted(expected)
    assert all(whole for _, whole in CALLS)


def test_a_function_that_fails_is_named_with_its_option_its_turn_and_its_line(tmp_path: Path) -> None:
    """A user saw "KeyError: 'nope'", which named neither a function nor an option."""
    message = (
        r"^the option context: tests\S*test_contexts:broken failed after turn 1 \(KeyError: 'nope'; "
        r"\S*test_contexts.py, line \d+\)"
    )
    with pytest.raises(ContextError, match=message):
        trained(tmp_path, context=broken)


def test_astar_po_plays_both_stages_in_the_same_context(tmp_path: Path) -> None:
    trainer = astar(tmp_path, lottery(draws=3), max_steps=2, learning_rate=1e-2, context=actions_so_far)
    assert isinstance(trainer, Spy)
    trainer.train()
    for played in (trainer.reference_played, trainer.played):
        texts = [TOKENIZER.decode(turn.prompt_ids) for one in played for turn in one.turns[1:]]
        assert texts and all("Actions so far: " in text for text in texts)
    assert max(row["sampling/ratio_deviation_max"] for row in trainer.state.log_history[:2]) < 1e-3


def test_a_saved_configuration_names_the_function(tmp_path: Path) -> None:
    args = small_trainer(tmp_path, context=opening_alone).args
    assert args.context == f"{__name__}:opening_alone"
    assert small_trainer(tmp_path, context="actions_so_far").args.context == "actions_so_far"


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        ([], "return None, or messages"),
        ("text", "return None, or messages"),
        ([{"role": "system", "content": "?"}], "a system message is the option system_prompt"),
        ([*user("?"), {"role": "assistant", "content": "!"}], "the user's first and last"),
        ([{"role": "user", "content": None}], "return None, or messages"),
    ],
)
def test_what_is_no_conversation_is_refused(returned: Any, words: str) -> None:
    turn = Turn((1,), (2,), (), "", "", 0.0)
    with pytest.raises(ContextError, match=f"(?s)^the option context: .*lambda> returned .*{words}"):
        WrittenContext(lambda turns, opening: returned).rebuilt(None, [turn], ["?", "!"], "!")  # type: ignore[arg-type]


def test_options_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="window_turns is 2 and context 'actions_so_far'; give one of the two"):
        small_trainer(tmp_path, window_turns=2, context="actions_so_far")
    with pytest.raises(FunctionNameError, match="context: 'nowhere:none' cannot be imported"):
        small_trainer(tmp_path, context="nowhere:none")
    with pytest.raises(FunctionNameError, match="context: .*lambda.*define it at the top of a module"):
        small_trainer(tmp_path, context=lambda turns, opening: None)
    with pytest.raises(OptionError, match="context is actions_so_far; leave it unset, or change this: loss_type"):
        small_trainer(tmp_path, context="actions_so_far", loss_type="luspo")


def test_a_window_of_all_turns_never_builds_a_context() -> None:
    assert SlidingWindow(3).rebuilt(None, [Turn((1,), (2,), (), "", "", 0.0)] * 2, [], "") is None  # type: ignore[arg-type]
