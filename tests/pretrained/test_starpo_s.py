"""StarPO-S on a pretrained model: all weights and LoRA, with and without thoughts; stopped, resumed, merged, read back.

In each run one of two groups of two is kept, of trajectories of two turns.
"""

from collections.abc import Callable
from math import isfinite
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.pretrained import LORA, Run

pytestmark = pytest.mark.timeout(1200)  # minutes on a busy machine
Make = Callable[..., Run]
HALF = {"filter_ratio": 0.5}


@pytest.fixture(scope="module")
def whole(run: Make) -> Run:
    """Three updates of all weights on the lake, without thoughts."""
    return run("ragen/FrozenLake-v0", learning_rate=1e-5, **HALF).train()


@pytest.fixture(scope="module")
def lora(run: Make) -> Run:
    """Three updates of LoRA on Sokoban, with thoughts, and a checkpoint after the second."""
    saved = {"save_strategy": "steps", "save_steps": 2, "save_total_limit": 2}
    return run("ragen/Sokoban-v0", think=True, max_reply_length=12, peft_config=LORA, **saved, **HALF).train()


def check_updates(done: Run, tokens_at_least: int) -> None:
    """Sampler and trainer agreed, three updates were made, and they changed what is trained."""
    (gap,) = done.gaps
    assert gap.tokens >= tokens_at_least and gap.largest < 1e-3
    assert len(done.logged("loss")) == 3 and all(map(isfinite, done.logged("loss")))
    assert max(done.logged("sampling/ratio_deviation_max")) < 1e-3
    assert min(done.logged("grad_norm")) > 0 and all(map(isfinite, done.logged("grad_norm")))
    assert max(done.logged("filter/trajectories_used")) == 2 < min(done.logged("filter/trajectories_sampled")) == 4
    assert all(bool(value.isfinite().all()) for value in done.trained().values())


def test_all_weights_without_thoughts(whole: Run) -> None:
    check_updates(whole, tokens_at_least=8)
    after = whole.trained()
    assert len(after) == len(whole.before) == 272
    same = [name for name, value in after.items() if torch.equal(value, whole.before[name])]
    assert same == []


def test_lora_with_thoughts(lora: Run) -> None:
    check_updates(lora, tokens_at_least=24)
    after = lora.trained()
    assert len(after) == len(lora.before) == 2 * 7 * 30  # A and B of every linear layer
    assert [name for name, value in after.items() if torch.equal(value, lora.before[name])] == []


def test_all_weights_with_thoughts(run: Make) -> None:
    """One update; LoRA without thoughts is in test_other_algorithms.py."""
    done = run("ragen/Bandit-v0", think=True, max_reply_length=12, max_steps=1, **HALF).train()
    assert done.gaps[0].tokens >= 24 and done.gaps[0].largest < 1e-3
    assert len(done.logged("loss")) == 1 and isfinite(done.logged("loss")[0])


def greedy(model: PreTrainedModel, done: Run, length: int = 8) -> list[tuple[int, ...]]:
    """The contexts of two greedy episodes of two turns, in this package."""
    policy = TransformersPolicy(model, done.trainer.chat, Sampling(length, 0.0))
    return [one.token_ids for one in play(quizzes([2, 2]), policy, [Start(0), Start(1)])]


def check_read_back(folder: Path, done: Run) -> None:
    """A saved folder, read by plain Transformers, says what the trained model says, and so does its ``generate``."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    contexts = greedy(model, done)
    assert contexts == greedy(done.trainer.model, done)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.chat_template == done.trainer.tokenizer.chat_template
    first = done.trainer.chat.start(quizzes([2])[0].reset()[0])
    made = model.generate(torch.tensor([first]), do_sample=False, max_new_tokens=8)[0].tolist()
    assert tuple(made) == contexts[0][: len(made)] and len(made) > len(first)


def test_a_saved_model_is_read_back_by_plain_transformers(whole: Run, tmp_path: Path) -> None:
    whole.trainer.save_model(str(tmp_path / "model"))
    check_read_back(tmp_path / "model", whole)


def test_lora_is_merged_and_read_back_by_plain_transformers(lora: Run, tmp_path: Path) -> None:
    lora.trainer.save_model(str(tmp_path / "adapter"))
    merged = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter").merge_and_unload()
    merged.save_pretrained(tmp_path / "merged")
    lora.trainer.tokenizer.save_pretrained(tmp_path / "merged")
    check_read_back(tmp_path / "merged", lora)


def test_a_resumed_run_ends_where_the_unbroken_one_did(lora: Run, run: Make) -> None:
    folder = Path(lora.trainer.args.output_dir)
    again = run("ragen/Sokoban-v0", think=True, max_reply_length=12, peft_config=LORA, output_dir=str(folder), **HALF)
    again.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    assert again.logged("loss")[-1] == pytest.approx(lora.logged("loss")[-1], abs=1e-6)
    for name, value in again.trained().items():
        assert torch.allclose(value, lora.trained()[name], atol=1e-6), name
