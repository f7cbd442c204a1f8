"""Training a pretrained model: StarPO-S with all weights and LoRA, resumed, merged, read back; a critic; A*-PO.

In each run of StarPO-S one of two groups of two is kept, of trajectories of two turns.
"""

from collections.abc import Callable
from math import isfinite
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.pretrained import LORA, Run
from tests.support.ragen_trl.trainers import lottery

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
    """Sampler and trainer agreed, three updates were made, and they changed all that is trained."""
    assert all(gap.largest < 1e-3 for gap in done.gaps) and done.gaps[-1].tokens >= tokens_at_least
    for name in ("loss", "grad_norm"):
        assert len(done.logged(name)) == 3 and all(map(isfinite, done.logged(name)))
    assert max(done.logged("sampling/ratio_deviation_max")) < 1e-3
    after = done.trained()
    assert [name for name, value in after.items() if torch.equal(value, done.before[name])] == []
    assert all(bool(value.isfinite().all()) for value in after.values())


def check_half_is_kept(done: Run) -> None:
    assert min(done.logged("grad_norm")) > 0
    assert max(done.logged("filter/trajectories_used")) == 2 < min(done.logged("filter/trajectories_sampled")) == 4


def test_all_weights_without_thoughts(whole: Run) -> None:
    check_updates(whole, tokens_at_least=8)
    check_half_is_kept(whole)
    assert len(whole.before) == 272


def test_lora_with_thoughts(lora: Run) -> None:
    check_updates(lora, tokens_at_least=24)
    check_half_is_kept(lora)
    assert len(lora.before) == 2 * 7 * 30  # A and B of every linear layer


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


# PPO with a critic, and A*-PO, with LoRA: three updates each


def test_ppo_with_a_critic_that_is_an_adapter(run: Make) -> None:
    """ToyShop, two turns, without thoughts."""
    how = {"num_generations": 1, "per_device_train_batch_size": 2, "critic_batch_size": 2, "critic_learning_rate": 1e-3}
    made = run("ragen/ToyShop-v0", StarPOConfig, advantage="gae", peft_config=LORA, max_actions_per_turn=1, **how)
    critic = made.trainer.critic
    assert critic is not None
    before = [value.detach().clone() for value in critic.parameters]
    check_updates(made.train(), tokens_at_least=8)
    assert not any(torch.equal(value, old) for value, old in zip(critic.parameters, before, strict=True))
    assert all(map(isfinite, made.logged("critic/value_loss")))


def test_a_star_po(run: Make) -> None:
    """Of a game that any reply can win, since the reference must succeed sometimes; its tokens are compared as well."""
    made = run(
        lottery(draws=2),
        AStarPOConfig,
        AStarPOTrainer,
        peft_config=LORA,
        num_generations=1,
        per_device_train_batch_size=2,
        num_train_seeds=2,
        reference_samples=2,
        max_reference_samples=2,
    )
    check_updates(made.train(), tokens_at_least=8)
    assert min(made.logged("loss")) >= 0
