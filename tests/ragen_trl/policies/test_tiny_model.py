"""The embedded model: the published tokenizer, which loses nothing, and one token per place on the map."""

import hashlib
from threading import Event
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ragen_envs import AgentTurns, Countdown
from ragen_trl.cli.main import main
from ragen_trl.config.options import ExecutionOptions
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.rollout.loop import EnvResetError
from tests.support.ragen_trl.trainers import TOKENIZER


def test_the_common_tokenizer_is_the_one_that_published_runs_were_made_with() -> None:
    """The vocabulary's numbers are rows of saved models: a change here makes every published figure another one."""
    text = TOKENIZER.backend_tokenizer.to_str()
    found = hashlib.sha256(text.encode()).hexdigest()
    assert found == "677bc28fd95f202bebd85a59393cbc1957b42622e5a829ea8d21da184d707e62"
    for adds_nothing in ("ragen/FrozenLake-v0", "tests.support.ragen_envs.planted:planted/Bare-v0"):
        assert build_tiny_tokenizer(640, env=adds_nothing).backend_tokenizer.to_str() == text


@pytest.mark.parametrize("call", ["reset", "step"])
def test_an_environment_that_hangs_is_said_within_its_time_limit(
    monkeypatch: pytest.MonkeyPatch, gate: Event, call: str
) -> None:
    """Both while the embedded model's words are collected, and in a dry run."""
    present = getattr(AgentTurns, call)

    def hanging(turns: AgentTurns, *given: Any, **options: Any) -> Any:
        if isinstance(turns.unwrapped, Countdown):
            gate.wait(60)
        return present(turns, *given, **options)

    monkeypatch.setattr(AgentTurns, call, hanging)
    with pytest.raises(EnvResetError, match="timeout" if call == "reset" else "hangs at turn 1"):
        build_tiny_tokenizer(env="ragen/Countdown-v0", args=ExecutionOptions(env_timeout=0.5))
    options = ["--env", "ragen/Countdown-v0", "--env_timeout", "0.5", "--dry-run"]
    assert main(["train", *options]) == 2


def test_building_leaves_the_global_dice_alone() -> None:
    before = torch.get_rng_state()
    build_tiny_model(TOKENIZER, seed=5, hidden_size=32, num_layers=1)
    assert torch.equal(torch.get_rng_state(), before)


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_comes_back(text: str) -> None:
    ids = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(ids) == text
