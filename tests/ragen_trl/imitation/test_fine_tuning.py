"""Warm start: what is demonstrated, what of it is learnt, and a folder that is there whole or not at all."""

import json
import shutil
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
from ragen_trl.imitation.fine_tuning import WarmStartConfig, demonstrate, to_examples, warm_start
from ragen_trl.policies.tiny_model import build_tiny_model
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.seeds import EVALUATION_END, WARM_START
from ragen_trl.trajectory import Trajectory, Turn

LAKE = "ragen/FrozenLake-v0"
FIRM: dict[str, Any] = {"env_kwargs": {"is_slippery": False, "frozen_prob": 0.9}}


def config(**values: Any) -> StarPOConfig:
    quiet = {"bf16": False, "use_cpu": True, "report_to": "none"}
    return StarPOConfig(output_dir="unused", think=False, **{**quiet, **FIRM, **values})


@pytest.fixture
def chat(tiny_tokenizer: PreTrainedTokenizerFast) -> Chat:
    return Chat(tiny_tokenizer, reply_prefix="<answer>")


def played(chat: Chat, count: int, noise: float, args: StarPOConfig | None = None, **values: Any) -> list[Trajectory]:
    return demonstrate(LAKE, args or config(), chat, WarmStartConfig(count, noise, **values), batch_size=64)


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

    monkeypatch.setattr("ragen_trl.imitation.supervised.can_share_prefixes", lambda *_: False)
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
