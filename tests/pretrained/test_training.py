"""Training a pretrained model: StarPO-S with all weights and LoRA, saved, merged and resumed; a critic; A*-PO.

In each run of StarPO-S one of two groups of two is kept, of trajectories of two turns.
"""

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ragen_trl import AStarPOConfig, AStarPOTrainer, StarPOConfig, StarPOTrainer
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.fake_envs import quizzes
from tests.support.ragen_trl.trainers import limits_of, logged, lottery, parameters

pytestmark = pytest.mark.timeout(1200)  # minutes on a busy machine
Make = Callable[..., StarPOTrainer]
LORA = LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM")
PAIR = {"peft_config": LORA, "num_generations": 1, "per_device_train_batch_size": 2}
RUNS: dict[str, dict[str, Any]] = {
    "all weights, without thoughts": {"env": "ragen/FrozenLake-v0", "learning_rate": 1e-5, "filter_ratio": 0.5},
    "LoRA, with thoughts": {
        **{"env": "ragen/Sokoban-v0", "think": True, "max_reply_length": 12, "peft_config": LORA, "filter_ratio": 0.5},
        **{"save_strategy": "steps", "save_steps": 2, "save_total_limit": 2},
    },
    "a critic that is an adapter": {
        **{"env": "ragen/ToyShop-v0", "config": StarPOConfig, "advantage": "gae", "max_actions_per_turn": 1, **PAIR},
        **{"critic_batch_size": 2, "critic_learning_rate": 1e-3},
    },
    # Of a game that any reply can win, since the reference must succeed sometimes.
    "A*-PO": {
        **{"env": lottery(draws=2), "config": AStarPOConfig, "trainer": AStarPOTrainer, **PAIR},
        **limits_of(lottery(draws=2)),
        **{"num_train_seeds": 2, "reference_samples": 2, "max_reference_samples": 2},
    },
}
TRAINED = {"all weights, without thoughts": 272, "LoRA, with thoughts": 2 * 7 * 30}  # A and B of every linear layer


def trainable(trainer: StarPOTrainer) -> dict[str, torch.Tensor]:
    """A copy of the parameters that are trained, of the policy and a critic."""
    own = {name for name, value in trainer.model.named_parameters() if value.requires_grad}
    critic = [] if trainer.critic is None else trainer.critic.parameters
    copies = {f"critic {place}": value.detach().clone() for place, value in enumerate(critic)}
    return {name: value for name, value in parameters(trainer).items() if name in own} | copies


@pytest.mark.parametrize("name", RUNS)
def test_three_updates_change_all_that_is_trained(run: Make, tmp_path: Path, name: str) -> None:
    """Sampler and trainer agree; a saved policy is read back; and a run resumed after two updates ends alike."""
    trainer = run(**RUNS[name])
    before = trainable(trainer)
    trainer.train()
    after = trainable(trainer)
    for metric in ("loss", "grad_norm"):
        assert len(logged(trainer, metric)) == 3 and all(map(isfinite, logged(trainer, metric)))
    assert max(logged(trainer, "sampling/ratio_deviation_max")) < 1e-3
    assert [key for key, value in after.items() if torch.equal(value, before[key])] == []
    assert all(bool(value.isfinite().all()) for value in after.values())
    if name == "A*-PO":
        assert min(logged(trainer, "loss")) >= 0
    if name not in TRAINED:
        return
    assert len(before) == TRAINED[name] and min(logged(trainer, "grad_norm")) > 0
    assert max(logged(trainer, "filter/trajectories_used")) == 2
    assert min(logged(trainer, "filter/trajectories_sampled")) == 4
    trainer.save_model(str(tmp_path / "model"))
    if "LoRA" in name:
        merged = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "model").merge_and_unload()
        merged.save_pretrained(tmp_path / "merged")
        trainer.tokenizer.save_pretrained(tmp_path / "merged")
        again = run(**RUNS[name], output_dir=trainer.args.output_dir)
        again.train(resume_from_checkpoint=str(Path(trainer.args.output_dir) / "checkpoint-2"))
        assert logged(again, "loss")[-1] == pytest.approx(logged(trainer, "loss")[-1], abs=1e-6)
        for key, value in trainable(again).items():
            assert torch.allclose(value, after[key], atol=1e-6), key
    check_read_back(tmp_path / ("merged" if "LoRA" in name else "model"), trainer)


def greedy(model: PreTrainedModel, trainer: StarPOTrainer, length: int = 8) -> list[tuple[int, ...]]:
    """The contexts of two greedy episodes of two turns, in this package."""
    policy = TransformersPolicy(model, trainer.chat, Sampling(length, 0.0))
    return [one.token_ids for one in play(quizzes([2, 2]), policy, [Start(0), Start(1)])]


def check_read_back(folder: Path, trainer: StarPOTrainer) -> None:
    """A saved folder, read by plain Transformers, says what the trained model says, and so does its ``generate``."""
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    contexts = greedy(model, trainer)
    assert contexts == greedy(trainer.model, trainer)
    assert AutoTokenizer.from_pretrained(folder).chat_template == trainer.tokenizer.chat_template
    first = trainer.chat.start(quizzes([2])[0].reset()[0])
    made = model.generate(torch.tensor([first]), do_sample=False, max_new_tokens=8)[0].tolist()
    assert tuple(made) == contexts[0][: len(made)] and len(made) > len(first)
