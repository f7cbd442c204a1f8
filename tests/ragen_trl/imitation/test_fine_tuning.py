"""Warm start: what is demonstrated, what of it is learnt, and a folder that is there whole or not at all."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from ragen_trl import StarPOConfig
from ragen_trl.config.options import WarmStartConfig
from ragen_trl.imitation.fine_tuning import PackedSFTTrainer, demonstrate, to_examples, warm_start
from ragen_trl.policies.tiny_model import build_tiny_model
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.seeds import EVALUATION_END, WARM_START
from ragen_trl.trajectory import Trajectory, Turn

LAKE = "ragen/FrozenLake-v0"
FIRM: dict[str, Any] = {"env_kwargs": {"is_slippery": False, "frozen_prob": 0.9}}


def config(**values: Any) -> StarPOConfig:
    quiet = {"bf16": False, "use_cpu": True, "report_to": "none"}
    return StarPOConfig(output_dir="unused", **{"think": False, **quiet, **FIRM, **values})


@pytest.fixture
def chat(tiny_tokenizer: PreTrainedTokenizerFast) -> Chat:
    return Chat(tiny_tokenizer, reply_prefix="<answer>")


def played(chat: Chat, count: int, noise: float, args: StarPOConfig | None = None, **values: Any) -> list[Trajectory]:
    return demonstrate(LAKE, args or config(), chat, WarmStartConfig(count, noise, **values))


def test_demonstrations_use_seeds_of_their_own_and_are_repeatable(chat: Chat) -> None:
    first, again, other = played(chat, 5, 0.5), played(chat, 5, 0.5), played(chat, 5, 0.5, config(seed=1))
    assert [trajectory.seed for trajectory in first] == list(range(WARM_START, WARM_START + 5))
    assert first == again
    assert [t.token_ids for t in first] != [t.token_ids for t in other]
    assert WARM_START > EVALUATION_END


def test_labels_by_hand() -> None:
    turns = (Turn((1, 2), (3, 4), (), "", "", 0.0), Turn((5,), (6,), (), "", "", 0.0))
    examples = to_examples([Trajectory(turns, seed=0)])
    assert examples[0] == {"input_ids": [1, 2, 3, 4, 5, 6], "labels": [-100, -100, 3, 4, -100, 6]}


def test_labels_are_the_reply_tokens_and_nothing_else(chat: Chat) -> None:
    trajectories = played(chat, 20, 0.5)
    for trajectory, example in zip(trajectories, to_examples(trajectories), strict=True):
        assert example["input_ids"] == list(trajectory.token_ids)
        learnt = [label for label in example["labels"] if label != -100]
        assert learnt == [token for turn in trajectory.turns for token in turn.reply_ids]
        text = chat.tokenizer.decode(learnt)
        assert text == "".join(turn.reply.removeprefix("<answer>") + "<|im_end|>" for turn in trajectory.turns)


SHORT = WarmStartConfig(32, 0.0, demo_batch_size=8)


def start(tokenizer: PreTrainedTokenizerFast, folder: Path, options: WarmStartConfig = SHORT) -> Path:
    model = build_tiny_model(tokenizer, hidden_size=32, num_layers=1)
    return warm_start(model, tokenizer, LAKE, config(), options, folder)


def test_the_folder_holds_model_tokenizer_and_a_note(tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    folder = start(tiny_tokenizer, tmp_path / "warm")
    assert [path.name for path in tmp_path.iterdir()] == ["warm"]
    note = {"demonstrations": 32, "noise": 0.0, "successes": 32, "updates": 4}
    assert json.loads((folder / "warm_start.json").read_text()) == note
    model = AutoModelForCausalLM.from_pretrained(folder)
    fresh = build_tiny_model(tiny_tokenizer, hidden_size=32, num_layers=1)
    pairs = zip(model.parameters(), fresh.parameters(), strict=True)
    assert all(not torch.equal(learnt, before) for learnt, before in pairs)
    text = "State:\nP_\n_G"
    assert AutoTokenizer.from_pretrained(folder)(text)["input_ids"] == tiny_tokenizer(text)["input_ids"]


def test_adapters_are_merged_into_an_ordinary_model(tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    options = WarmStartConfig(32, 0.0, demo_batch_size=8, demo_lora_r=2)
    folder = start(tiny_tokenizer, tmp_path / "warm", options)
    assert not (folder / "adapter_config.json").exists()
    fresh = dict(build_tiny_model(tiny_tokenizer, hidden_size=32, num_layers=1).named_parameters())
    learnt = dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())
    changed = {name for name, value in learnt.items() if not torch.equal(value, fresh[name])}
    assert changed == {name for name in fresh if "proj.weight" in name}


def test_packed_demonstrations_make_the_step_of_single_rows(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = AutoModelForCausalLM.from_pretrained(start(tiny_tokenizer, tmp_path / "packed"))

    monkeypatch.setattr("ragen_trl.imitation.fine_tuning.can_share_prefixes", lambda *_: False)
    plain = AutoModelForCausalLM.from_pretrained(start(tiny_tokenizer, tmp_path / "plain"))
    for one, other in zip(packed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_a_crash_while_replacing_leaves_no_half_of_the_former_folder(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the former folder was deleted in place, so that a kill left a part of it to be read as whole."""
    target = tmp_path / "warm"
    target.mkdir()
    (target / "warm_start.json").write_text("former")
    (target / "model.safetensors").write_text("former")
    delete = shutil.rmtree

    def killed(path: Any, *args: Any, **kwargs: Any) -> None:
        if Path(path).exists() and (Path(path) / "warm_start.json").exists():
            (Path(path) / "model.safetensors").unlink()
            raise KeyboardInterrupt
        delete(path, *args, **kwargs)

    monkeypatch.setattr(shutil, "rmtree", killed)
    with pytest.raises(KeyboardInterrupt):
        start(tiny_tokenizer, target)
    assert not target.exists() or (target / "model.safetensors").exists()


def thought_of(reply: str) -> str:
    return reply.removeprefix("<think>").partition("</think>")[0]


def test_thoughts_are_learnt_and_change_no_action(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    silent, spoken = (
        demonstrate(
            LAKE,
            config(think=think, env_kwargs={}),
            Chat(tiny_tokenizer, reply_prefix="<think>" if think else "<answer>"),
            WarmStartConfig(24, 0.5),
        )
        for think in (False, True)
    )
    moves = [[[turn.info["actions"] for turn in one.turns] for one in told] for told in (silent, spoken)]
    assert moves[0] == moves[1]
    first = to_examples(spoken)[0]
    learnt = tiny_tokenizer.decode([label for label in first["labels"] if label != -100])
    assert thought_of(spoken[0].turns[0].reply) in learnt
    texts = [thought_of(turn.reply) for one in spoken for turn in one.turns]
    assert len(set(texts)) > 0.7 * len(texts)


# A warm start that was stopped ends where one that nothing stopped does


class Stopped(Exception):
    """What stops a warm start here."""


class Updates:
    """Counts the updates that are made, and stops before one of them."""

    def __init__(self) -> None:
        self.made = 0
        self.stop_before = -1


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> Iterator[Updates]:
    """Four updates are a pass, so there is a checkpoint after every one."""
    counted, step = Updates(), PackedSFTTrainer.training_step

    def counting(trainer: PackedSFTTrainer, *given: Any) -> Any:
        if trainer.state.global_step == counted.stop_before:
            raise Stopped
        counted.made += 1
        return step(trainer, *given)

    monkeypatch.setattr(PackedSFTTrainer, "training_step", counting)
    return counted


def begin(
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    options: WarmStartConfig = SHORT,
    seed: int = 0,
    of_model: int = 0,
    eps: float = 1e-6,
) -> Path:
    model = build_tiny_model(tokenizer, of_model, hidden_size=32, num_layers=1)
    model.config.rms_norm_eps = eps
    return warm_start(model, tokenizer, LAKE, config(seed=seed), options, folder)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder).state_dict())


def same(one: Path, other: Path) -> bool:
    theirs = weights(other)
    notes = [json.loads((folder / "warm_start.json").read_text()) for folder in (one, other)]
    return notes[0] == notes[1] and all(torch.equal(value, theirs[name]) for name, value in weights(one).items())


@pytest.mark.parametrize(
    "options",
    [
        SHORT,
        WarmStartConfig(32, 0.0, demo_batch_size=8, demo_lora_r=4),
        # The rate overshoots: the smallest loss is before the stop, and patience ends after it.
        WarmStartConfig(32, 0.5, demo_batch_size=8, demo_held_out=0.25, demo_learning_rate=0.5, demo_epochs=4.0),
    ],
    ids=["all weights", "lora", "held out"],
)
def test_it_goes_on_and_ends_where_an_unbroken_one_does(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, updates: Updates, options: WarmStartConfig
) -> None:
    whole = begin(tiny_tokenizer, tmp_path / "whole", options)
    needed, updates.made, updates.stop_before = updates.made, 0, updates.made - 1
    with pytest.raises(Stopped):
        begin(tiny_tokenizer, tmp_path / "broken", options)
    assert [path.name for path in tmp_path.iterdir() if path.name != "whole"] == ["broken.checkpoints"]
    updates.stop_before = -1
    broken = begin(tiny_tokenizer, tmp_path / "broken", options)
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
        begin(tiny_tokenizer, tmp_path / "warm")
    updates.made, updates.stop_before = 0, -1
    begin(tiny_tokenizer, tmp_path / "warm", **other)
    assert updates.made == 4


def test_a_checkpoint_that_was_not_written_to_its_end_is_not_read(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, updates: Updates
) -> None:
    whole = begin(tiny_tokenizer, tmp_path / "whole")
    updates.stop_before = 3
    with pytest.raises(Stopped):
        begin(tiny_tokenizer, tmp_path / "broken")
    (state,) = (tmp_path / "broken.checkpoints").glob("checkpoint-3/trainer_state.json")
    state.write_text(state.read_text()[:-10])
    updates.made, updates.stop_before = 0, -1
    assert same(begin(tiny_tokenizer, tmp_path / "broken"), whole) and updates.made == 4
