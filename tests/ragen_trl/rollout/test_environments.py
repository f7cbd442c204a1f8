"""How a model plays is recorded beside it, by scripts as by commands, and noticed where it is to play otherwise."""

import logging
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest

from ragen_trl import EnvSpec, StarPOConfig
from ragen_trl.rollout.environments import id_with_module, load_play_options, save_play_options, unlike_recorded
from tests.support.ragen_trl.trainers import TOKENIZER, Lottery, small_trainer

LAKE = "ragen/FrozenLake-v0"


@pytest.fixture
def registered() -> Iterator[str]:
    gymnasium.register("tests/Lottery-v0", Lottery, kwargs={"win": 1.0})
    yield "tests/Lottery-v0"
    del gymnasium.registry["tests/Lottery-v0"]


def options(**changes: object) -> StarPOConfig:
    return StarPOConfig(output_dir="unused", use_cpu=True, bf16=False, report_to="none", **changes)


def test_an_id_of_another_module_names_it(registered: str) -> None:
    """Regression: a script's run recorded an id that no command could make."""
    assert id_with_module(registered) == f"tests.support.ragen_trl.trainers:{registered}"
    for known in (LAKE, "FrozenLake-v1", "my_game:me/Game-v0"):
        assert id_with_module(known) == known


def test_only_an_environment_with_an_id_is_recorded(tmp_path: Path) -> None:
    save_play_options(tmp_path, [EnvSpec(LAKE, {"size": 5})], options(max_turns=3))
    found = load_play_options(str(tmp_path))
    assert (found["env"], found["env_kwargs"], found["max_turns"]) == (LAKE, {"size": 5}, 3)
    for specs in ([EnvSpec(Lottery)], [EnvSpec(LAKE), EnvSpec(LAKE, {"size": 5})]):
        save_play_options(tmp_path, specs, options(think=False))
        found = load_play_options(str(tmp_path))
        assert "env" not in found and found["think"] is False


def test_limits_are_compared_in_the_same_environment_only(tmp_path: Path) -> None:
    save_play_options(tmp_path, [EnvSpec(LAKE)], options(think=False, max_turns=3, format_penalty=-0.2))
    model = str(tmp_path)
    assert unlike_recorded(model, [EnvSpec(LAKE)], options()) == (
        "think is True, and was False; max_turns is 5, and was 3"
    )
    assert unlike_recorded(model, [EnvSpec("ragen/Sokoban-v0")], options()) == "think is True, and was False"
    assert unlike_recorded(model, [EnvSpec(LAKE)], options(think=False, max_turns=3)) == ""
    assert unlike_recorded("owner/name", [EnvSpec(LAKE)], options()) == ""


def test_a_trainer_records_how_it_played_and_says_what_the_next_does_otherwise(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: only the commands did, and a warm start without thoughts was trained with thoughts without a word."""
    first = small_trainer(tmp_path / "a", LAKE, think=False, max_steps=1, save_strategy="steps", save_steps=1)
    first.train()
    first.save_model(str(tmp_path / "saved"))
    for folder in (tmp_path / "saved", tmp_path / "a" / "checkpoint-1"):
        found = load_play_options(str(folder))
        assert (found["env"], found["think"]) == (LAKE, False)
    TOKENIZER.save_pretrained(tmp_path / "saved")
    with caplog.at_level(logging.WARNING, logger="ragen_trl"):
        small_trainer(tmp_path / "b", LAKE, model=str(tmp_path / "saved"), think=False)
        assert caplog.messages == []
        small_trainer(tmp_path / "c", LAKE, model=str(tmp_path / "saved"), think=True)
    assert caplog.messages == [
        f"{tmp_path / 'saved'} has learnt to play in another way, says its play.json: think is True, and was False"
    ]
