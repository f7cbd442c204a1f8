"""Warm start: what is demonstrated, what of it is learnt, and a folder that is there whole or not at all."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
)
from trl import SFTTrainer

from ragen_envs.webshop import RecordedShop
from ragen_trl import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.evaluator import evaluate
from ragen_trl.imitation import fine_tuning
from ragen_trl.imitation.fine_tuning import WarmStartConfig, demonstrate, to_examples, warm_start
from ragen_trl.policies.tiny_model import build_tiny_model
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import load_play_options
from ragen_trl.rollout.seeds import EVALUATION_END, WARM_START
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_envs.shop_recording import recording

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


def test_without_noise_every_lake_is_solved(chat: Chat) -> None:
    assert all(trajectory.success for trajectory in played(chat, 100, noise=0.0))


def test_with_nothing_but_noise_play_is_random(chat: Chat) -> None:
    """The success rate is that of the random row, within four standard errors of the difference."""
    count = 400
    noisy = sum(trajectory.success for trajectory in played(chat, count, noise=1.0)) / count
    random = evaluate("random", LAKE, config(), episodes=count).success
    assert abs(noisy - random) < 4 * (2 * 0.25 / count) ** 0.5
    assert noisy < 0.6


def test_more_noise_succeeds_less(chat: Chat) -> None:
    rates = [sum(trajectory.success for trajectory in played(chat, 128, noise)) for noise in (0.0, 0.5, 1.0)]
    assert rates[0] > rates[1] > rates[2]


def test_replies_have_the_actions_asked_for_and_the_limit_is_kept(chat: Chat) -> None:
    for wanted, limit, most in ((1, 5, 1), (3, 5, 3), (5, 2, 2)):
        trajectories = played(chat, 40, 0.5, config(max_actions_per_turn=limit), demo_actions_per_turn=wanted)
        counts = {turn.info["num_actions"] for trajectory in trajectories for turn in trajectory.turns}
        assert max(counts) == most
        assert all(turn.info["action_is_valid"] for trajectory in trajectories for turn in trajectory.turns)


def test_demonstrations_use_seeds_of_their_own_and_are_repeatable(chat: Chat) -> None:
    first, again, other = played(chat, 5, 0.5), played(chat, 5, 0.5), played(chat, 5, 0.5, config(seed=1))
    assert [trajectory.seed for trajectory in first] == list(range(WARM_START, WARM_START + 5))
    assert first == again
    assert [t.token_ids for t in first] != [t.token_ids for t in other]
    assert WARM_START > EVALUATION_END


def test_people_are_demonstrated_as_they_were_recorded(chat: Chat, tmp_path: Path) -> None:
    path = recording(tmp_path / "people.jsonl")
    args = config(env_kwargs={}, max_turns=9, max_actions=9, max_actions_per_turn=1, max_completion_length=20_000)
    shown = demonstrate(lambda: RecordedShop(path), args, chat, WarmStartConfig(3, 0.0))
    recorded = [json.loads(line)["actions"] for line in path.read_text().splitlines() if line]
    said = [[turn.reply for turn in trajectory.turns] for trajectory in shown]
    assert sorted(said) == sorted([[f"<answer>{action}</answer>" for action in actions] for actions in recorded])
    assert all(trajectory.success and trajectory.num_reply_tokens for trajectory in shown)


def test_who_learnt_from_people_plays_in_the_store_with_the_same_pages(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    """Regression: play.json named no environment, and `train` planned FrozenLake for the model."""
    path = recording(tmp_path / "people.jsonl")
    args = config(env_kwargs={}, max_turns=9, max_actions=9, max_actions_per_turn=1, max_completion_length=20_000)
    model = build_tiny_model(tiny_tokenizer, hidden_size=32, num_layers=1)
    people = partial(RecordedShop, path)
    folder = warm_start(model, tiny_tokenizer, people, args, WarmStartConfig(3, 0.0), tmp_path / "model")
    found = load_play_options(str(folder))
    assert found["env"] == "ragen/WebShop-v0" and found["max_turns"] == 9
    assert found["env_kwargs"] == {"parity": True, "observation_mode": "text_rich"}


def test_batches_do_not_change_what_is_played(chat: Chat) -> None:
    options = WarmStartConfig(10, 0.5)
    whole, split = (demonstrate(LAKE, config(), chat, options, batch_size=size) for size in (10, 3))
    assert whole == split


def test_an_episode_that_fails_on_another_process_is_left_out_here(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: processes had data sets of different lengths, and trained on different parts or waited for ever."""
    monkeypatch.setattr(fine_tuning, "gather_object", lambda failed: [*failed, WARM_START + 1])
    shown = demonstrate(LAKE, config(), chat, WarmStartConfig(4, 0.5))
    assert [one.seed - WARM_START for one in shown] == [0, 2, 3]


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


def test_learning_stops_where_held_out_demonstrations_get_worse(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast
) -> None:
    """A rate that overshoots: the weights are those of the minimum, and the passes that were allowed are not made."""
    options = WarmStartConfig(32, 0.0, demo_batch_size=4, demo_epochs=40.0, demo_held_out=0.2, demo_learning_rate=0.3)
    folder = start(tiny_tokenizer, tmp_path / "warm", options)
    note = json.loads((folder / "warm_start.json").read_text())
    losses = {int(step): loss for step, loss in note["held_out_losses"].items()}
    assert note["best_update"] == min(losses, key=losses.__getitem__)
    assert note["updates"] == max(losses) < 40 * 7  # of 32 demonstrations 7 are held out, 25 make 7 batches of 4
    assert note["updates"] - note["best_update"] == 3 * 2  # three times without a new minimum, four times in a pass
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == []
    chat = Chat(tiny_tokenizer, reply_prefix="<answer>")
    model = AutoModelForCausalLM.from_pretrained(folder)
    aside = np.random.default_rng(config().seed).permutation(32)[:7]
    rows = [row for index, row in enumerate(to_examples(played(chat, 32, 0.0))) if index in aside]
    total = sum(-_logprob(model, row["input_ids"], row["labels"]) for row in rows)
    count = sum(label != -100 for row in rows for label in row["labels"])
    assert total / count == pytest.approx(losses[note["best_update"]], rel=0.05)  # TRL: a mean of batches' means


def _logprob(model: Any, ids: list[int], labels: list[int]) -> float:
    """Sum of the labels' log-probabilities."""
    with torch.no_grad():
        found = model(torch.tensor([ids])).logits[0, :-1].log_softmax(-1)
    return sum(float(found[at, label]) for at, label in enumerate(labels[1:]) if label != -100)


def test_adapters_are_merged_into_an_ordinary_model(tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    options = WarmStartConfig(32, 0.0, demo_batch_size=8, demo_lora_r=2)
    folder = start(tiny_tokenizer, tmp_path / "warm", options)
    assert not (folder / "adapter_config.json").exists()
    fresh = dict(build_tiny_model(tiny_tokenizer, hidden_size=32, num_layers=1).named_parameters())
    learnt = dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())
    changed = {name for name, value in learnt.items() if not torch.equal(value, fresh[name])}
    assert changed == {name for name in fresh if "proj.weight" in name}


@pytest.mark.parametrize("rank", [0, 2])
def test_the_model_can_be_trained_on(tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, rank: int) -> None:
    """PEFT freezes what it adapts, and TRL asks a mixture of experts for its router's loss."""
    model = build_tiny_model(tiny_tokenizer, hidden_size=32, num_layers=1)
    options = WarmStartConfig(8, 0.0, demo_batch_size=8, demo_lora_r=rank)
    warm_start(model, tiny_tokenizer, LAKE, config(), options, tmp_path / "warm")
    assert all(value.requires_grad for value in model.parameters())


def test_a_mixture_of_experts_is_saved_as_it_was(tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    shape = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    mixture = MixtralConfig(
        vocab_size=len(tiny_tokenizer), **shape, num_key_value_heads=1, num_local_experts=2, sliding_window=None
    )
    options = WarmStartConfig(8, 0.0, demo_batch_size=8)
    folder = warm_start(MixtralForCausalLM(mixture), tiny_tokenizer, LAKE, config(), options, tmp_path / "warm")
    assert not AutoConfig.from_pretrained(folder).output_router_logits


def test_packed_demonstrations_make_the_step_of_single_rows(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = AutoModelForCausalLM.from_pretrained(start(tiny_tokenizer, tmp_path / "packed"))

    monkeypatch.setattr("ragen_trl.trainers.trl.supervised.can_share_prefixes", lambda *_: False)
    plain = AutoModelForCausalLM.from_pretrained(start(tiny_tokenizer, tmp_path / "plain"))
    for one, other in zip(packed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def test_the_trainer_is_given_the_examples_labels(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seam of TRL's ``SFTTrainer``: it takes ``input_ids`` and ``labels`` as they are, and pads only."""
    seen: list[dict[str, torch.Tensor]] = []
    compute = SFTTrainer.compute_loss

    def spy(self: SFTTrainer, model: Any, inputs: dict[str, torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        seen.append({key: value.clone() for key, value in inputs.items() if isinstance(value, torch.Tensor)})
        return compute(self, model, inputs, *args, **kwargs)

    monkeypatch.setattr(SFTTrainer, "compute_loss", spy)
    start(tiny_tokenizer, tmp_path / "warm", WarmStartConfig(8, 0.0, demo_batch_size=8))
    chat = Chat(tiny_tokenizer, reply_prefix="<answer>")
    expected = {tuple(row["input_ids"]): row["labels"] for row in to_examples(played(chat, 8, 0.0))}
    (batch,) = seen
    rows = zip(batch["input_ids"].tolist(), batch["labels"].tolist(), batch["attention_mask"].tolist(), strict=True)
    for ids, labels, attention in rows:
        real = [i for i, bit in enumerate(attention) if bit]
        assert [labels[i] for i in real] == expected.pop(tuple(ids[i] for i in real))
        assert all(label == -100 for label, bit in zip(labels, attention, strict=True) if not bit)
    assert expected == {}


def test_nothing_but_a_former_warm_start_is_replaced(tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    """Whatever was there was deleted, a user's folder as well."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("mine")
    args = StarPOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True)
    for name, message in (("file", "is a file"), ("folder", "holds no warm_start.json")):
        with pytest.raises(OptionError, match=message):
            warm_start(None, tiny_tokenizer, "ragen/Bandit-v0", args, WarmStartConfig(), tmp_path / name)  # type: ignore
    assert (tmp_path / "folder" / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("crash", ["while learning", "while saving", "before the end"])
def test_a_crash_leaves_no_folder(
    tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    where = {"while learning": (SFTTrainer, "train"), "while saving": (SFTTrainer, "save_model")}
    monkeypatch.setattr(*where.get(crash, (Path, "rename")), fail)
    with pytest.raises(OSError, match="No space left"):
        start(tiny_tokenizer, tmp_path / "warm")
    assert not (tmp_path / "warm").exists()
    monkeypatch.undo()
    assert start(tiny_tokenizer, tmp_path / "warm") == tmp_path / "warm"  # what was left over is no obstacle
    assert [path.name for path in tmp_path.iterdir()] == ["warm"]


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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"noise": 1.5}, "noise is 1.5; it is a probability"),
        ({"noise": -0.1}, "noise is -0.1"),
        ({"demonstrations": 0}, "demonstrations is 0; it must be at least 1"),
        ({"demo_actions_per_turn": 0}, "demo_actions_per_turn is 0"),
        ({"demo_batch_size": 0}, "demo_batch_size is 0"),
        ({"demo_held_out": 1.0}, "demo_held_out is 1.0; it is a share"),
        ({"demo_lora_r": -1}, "demo_lora_r is -1; it is a rank"),
        ({"demo_epochs": -1.0}, "demo_epochs is -1.0; it must be a number above 0"),
        ({"demo_learning_rate": float("nan")}, "demo_learning_rate is nan; it must be a number above 0"),
    ],
)
def test_options_out_of_range_are_named(values: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        WarmStartConfig(**values)
