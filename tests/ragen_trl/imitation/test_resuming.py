"""A warm start that was stopped ends where one that nothing stopped does."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from ragen_trl import StarPOConfig
from ragen_trl.imitation import resuming
from ragen_trl.imitation.fine_tuning import WarmStartConfig, warm_start
from ragen_trl.imitation.supervised import PackedSFTTrainer
from ragen_trl.policies.tiny_model import build_tiny_model

LAKE = "ragen/FrozenLake-v0"
FOUR = WarmStartConfig(32, 0.0, demo_batch_size=8)


class Stopped(Exception):
    """What stops a warm start here."""


class Updates:
    """Counts the updates that are made, and stops before one of them."""

    def __init__(self) -> None:
        self.made = 0
        self.stop_before = -1


@pytest.fixture(autouse=True)
def updates(monkeypatch: pytest.MonkeyPatch) -> Iterator[Updates]:
    """With a checkpoint after every update."""
    monkeypatch.setattr(resuming, "SAVED_EVERY", 0.0)
    counted, step = Updates(), PackedSFTTrainer.training_step

    def counting(trainer: PackedSFTTrainer, *given: Any) -> Any:
        if trainer.state.global_step == counted.stop_before:
            raise Stopped
        counted.made += 1
        return step(trainer, *given)

    monkeypatch.setattr(PackedSFTTrainer, "training_step", counting)
    return counted


def start(
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    options: WarmStartConfig = FOUR,
    seed: int = 0,
    of_model: int = 0,
    eps: float = 1e-6,
) -> Path:
    model = build_tiny_model(tokenizer, of_model, hidden_size=32, num_layers=1)
    model.config.rms_norm_eps = eps
    quiet: dict[str, Any] = {"bf16": False, "use_cpu": True, "report_to": "none", "think": False}
    return warm_start(model, tokenizer, LAKE, StarPOConfig("unused", seed=seed, **quiet), options, folder)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder).state_dict())


def same(one: Path, other: Path) -> bool:
    theirs = weights(other)
    notes = [json.loads((folder / "warm_start.json").read_text()) for folder in (one, other)]
    return notes[0] == notes[1] and all(torch.equal(value, theirs[name]) for name, value in weights(one).items())


@pytest.mark.parametrize(
    "options",
    [
        FOUR,
        WarmStartConfig(32, 0.0, demo_batch_size=8, demo_lora_r=4),
        # The rate overshoots: the smallest loss is before the stop, and patience ends after it.
        WarmStartConfig(32, 0.5, demo_batch_size=8, demo_held_out=0.25, demo_learning_rate=0.5, demo_epochs=4.0),
    ],
    ids=["all weights", "lora", "held out"],
)
def test_it_goes_on_and_ends_where_an_unbroken_one_does(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, updates: Updates, options: WarmStartConfig
) -> None:
    whole = start(tiny_tokenizer, tmp_path / "whole", options)
    needed, updates.made, updates.stop_before = updates.made, 0, updates.made - 1
    with pytest.raises(Stopped):
        start(tiny_tokenizer, tmp_path / "broken", options)
    assert [path.name for path in tmp_path.iterdir() if path.name != "whole"] == ["broken.partial"]
    updates.stop_before = -1
    broken = start(tiny_tokenizer, tmp_path / "broken", options)
    assert updates.made == needed and same(broken, whole)
    assert {path.name for path in broken.iterdir()} == {path.name for path in whole.iterdir()}


@pytest.mark.parametrize(
    "other",
    [
        {"options": WarmStartConfig(32, 0.0, demo_batch_size=8, demo_learning_rate=1e-3)},
        {"options": WarmStartConfig(32, 0.1, demo_batch_size=8)},
        {"seed": 1},
        {"of_model": 1},
        {"eps": 1e-3},
    ],
    ids=["rate", "demonstrations", "seed", "model", "its configuration"],
)
def test_another_one_begins_anew(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, updates: Updates, other: dict[str, Any]
) -> None:
    updates.stop_before = 2
    with pytest.raises(Stopped):
        start(tiny_tokenizer, tmp_path / "warm")
    updates.made, updates.stop_before = 0, -1
    start(tiny_tokenizer, tmp_path / "warm", **other)
    assert updates.made == 4


def test_a_checkpoint_that_was_not_written_to_its_end_is_not_read(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, updates: Updates
) -> None:
    whole = start(tiny_tokenizer, tmp_path / "whole")
    updates.stop_before = 3
    with pytest.raises(Stopped):
        start(tiny_tokenizer, tmp_path / "broken")
    (state,) = (tmp_path / "broken.partial" / "checkpoints").glob("checkpoint-3/trainer_state.json")
    state.write_text(state.read_text()[:-10])
    updates.made, updates.stop_before = 0, -1
    assert same(start(tiny_tokenizer, tmp_path / "broken"), whole) and updates.made == 4
