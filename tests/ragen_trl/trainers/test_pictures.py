"""Training on pictures: the trainer computes what the sampler did, whatever happens to the rows in between."""

from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from transformers import PreTrainedModel, Qwen2VLImageProcessorPil

from benchmarks.learning.seeing import demonstrated, imitate
from ragen_envs import AgentTurns
from ragen_trl import AStarPOConfig, StarPOConfig, StarPOSConfig
from ragen_trl.batching.pictures import picture_inputs
from ragen_trl.errors import OptionError
from ragen_trl.monitoring.collapse_monitor import CollapseMonitor
from ragen_trl.policies.model_support import UnsupportedModelError
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.rollout.environments import make_chat
from ragen_trl.trajectory import Picture
from tests.support.ragen_trl.trainers import LastRollout, logged, parameters, small_model, small_trainer
from tests.support.ragen_trl.vision import (
    TOKENIZER,
    frames,
    processor_of,
    sampled,
    vision_config,
    vision_model,
    vision_trainer,
)


def bandit() -> AgentTurns:
    """The high arm always pays."""
    made = gymnasium.make("ragen/Bandit-v0", render_mode="rgb_array", high_probability=1.0)
    return AgentTurns(made, think=False, max_turns=1, observation="image", image_size=56)


def pulls_any_arm(folder: Path) -> PreTrainedModel:
    """The small model after a few supervised steps: it names one of the arms, whichever."""
    model, args = vision_model(), vision_config(folder)
    processor, turns = processor_of(model), bandit()
    chat = make_chat(TOKENIZER, turns, args, processor.text)
    script = ScriptedPolicy(lambda env, random: turns.format_reply([str(random.choice(["Dragon", "Phoenix"]))]), chat)
    imitate(model, demonstrated(script, EnvSpec(bandit), args, chat, range(12)), processor, 60, 1e-2, batch_size=4)
    return model


@pytest.mark.parametrize("family", ["2.5", "3"])
def test_the_trainer_scores_what_the_sampler_sampled(tmp_path: Path, family: str) -> None:
    """With StarPO-S, whose filter keeps half of the groups, over two micro-batches. The self-check stops otherwise."""
    changes = {"filter_ratio": 0.5, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 1}
    model = vision_model(family=family)
    before = model.model.visual.patch_embed.proj.weight.detach().clone()
    trainer = vision_trainer(tmp_path, frames, StarPOSConfig, model, learning_rate=1e-2, **changes)
    last = LastRollout(trainer)
    trainer.train()
    assert {len(one.pictures) for one in last.played} == {1, 2, 3}
    assert logged(trainer, "filter/trajectories_used") == [4]
    assert logged(trainer, "sampling/ratio_deviation_max")[0] < 1e-4
    assert not trainer.shares_prefixes
    assert (model.model.visual.patch_embed.proj.weight - before).abs().max() > 1e-3


class Guided(AgentTurns):
    """Leads through a shop, whatever the model says, so that an untrained one sees results and a product."""

    def step(self, action: str) -> Any:
        """Searches, then opens one of the results."""
        _, *found = self._env_info["available_actions"].clickables or ("",)
        return super().step(self.format_reply([f"click[{found[-1]}]" if found else "search[blue shoe]"]))


SHOPS = [
    ("ragen/WebShop-v0", {"catalog": "toy", "observation_mode": "short"}),
    ("ragen/ToyShop-v0", {}),
]


@pytest.mark.parametrize(("env_id", "kwargs"), SHOPS)
def test_a_shop_is_seen_and_scored_alike(tmp_path: Path, env_id: str, kwargs: dict[str, Any]) -> None:
    def made() -> AgentTurns:
        env = gymnasium.make(env_id, render_mode="rgb_array", **kwargs)
        return Guided(env, think=False, max_turns=3, observation="image", image_size=56)

    trainer = vision_trainer(tmp_path, made, max_turns=3, max_steps=1, max_completion_length=1500)
    last = LastRollout(trainer)
    trainer.train()
    assert {len(set(one.pictures)) for one in last.played} == {3}
    assert logged(trainer, "sampling/ratio_deviation_max")[0] < 1e-4


def test_rows_keep_their_pictures_through_shuffles_filters_and_packing(tmp_path: Path) -> None:
    """Half of the rows are filler, and rows have one to three pictures."""
    changes = {"filter_ratio": 0.5, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}
    trainer = vision_trainer(tmp_path, frames, StarPOSConfig, max_steps=1, **changes)
    last = LastRollout(trainer)
    seen: list[dict[str, Any]] = []
    inner = trainer.prepare_micro_batches
    trainer.prepare_micro_batches = lambda parts: seen.extend(made := inner(parts)) or made  # type: ignore[method-assign]
    trainer.train()
    known = {(one.token_ids, one.pictures): one for one in last.played}
    found = 0
    for part in seen:
        for row, pictures in enumerate(part["pictures"]):
            if not part["completion_mask"][row].any():
                continue
            masks = part["prompt_mask"][row].bool(), part["completion_mask"][row].bool()
            ids = (*part["prompt_ids"][row][masks[0]].tolist(), *part["completion_ids"][row][masks[1]].tolist())
            trajectory = known[ids, pictures]
            used = (part["completion_mask"] * part["tool_mask"])[row].bool()
            torch.testing.assert_close(part["sampling_per_token_logps"][row][used], sampled(trajectory))
            found += 1
    assert found == 8 and len(last.played) == 16


def test_micro_batches_do_not_change_the_update(tmp_path: Path) -> None:
    made = []
    for size in (8, 2):
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": 8 // size}
        trainer = vision_trainer(tmp_path / str(size), frames, max_steps=1, learning_rate=1e-2, optim="sgd", **options)
        trainer.train()
        made.append(parameters(trainer))
    for name, value in made[0].items():
        torch.testing.assert_close(value, made[1][name], rtol=0, atol=1e-5)


def test_three_updates_learn_the_bandit(tmp_path: Path) -> None:
    options = {"per_device_train_batch_size": 32, "num_generations": 8, "lr_scheduler_type": "constant"}
    model = pulls_any_arm(tmp_path)
    trainer = vision_trainer(tmp_path, bandit, model=model, max_steps=4, learning_rate=5e-3, **options)
    trainer.add_callback(CollapseMonitor(trainer, mi_every=1))
    trainer.train()
    success = logged(trainer, "success")
    # Regression: the mutual information was measured without the pictures, which tell prompts apart.
    measured = {name for row in trainer.state.log_history for name in row if name.startswith("collapse/")}
    assert "collapse/reply_tokens" in measured and "collapse/mi" not in measured
    assert success[0] <= 0.5 and success[3] >= 0.75


def test_an_evaluation_during_training_sees_too(tmp_path: Path) -> None:
    """TRL computes old log-probabilities for its loss, with the pictures of the rows."""
    options = {"num_eval_seeds": 8, "per_device_eval_batch_size": 4, "num_iterations": 2}
    trainer = vision_trainer(tmp_path, bandit, max_reply_length=2, **options)
    metrics = trainer.evaluate()
    assert metrics["eval_loss"] == pytest.approx(0.0, abs=1e-5) and 0 <= metrics["eval_success"] <= 1


def test_a_saved_model_has_its_image_processor(tmp_path: Path) -> None:
    trainer = vision_trainer(tmp_path, bandit, max_reply_length=1)
    trainer.save_model(str(tmp_path / "saved"))
    assert Qwen2VLImageProcessorPil.from_pretrained(tmp_path / "saved").patch_size == 14
    again = vision_trainer(tmp_path / "again", bandit, model=str(tmp_path / "saved"), max_steps=1, max_reply_length=1)
    again.train()
    assert logged(again, "sampling/ratio_deviation_max")[0] < 1e-4


def test_filler_rows_show_the_pictures_of_their_prompts() -> None:
    processor = processor_of(vision_model())
    image, pad = processor.image_id, processor.pad_id
    one, other = Picture(56, 28, bytes(56 * 28 * 3)), Picture(28, 28, bytes([255] * 28 * 28 * 3))
    ids = torch.tensor([[9, image, image, 5, image], [pad, image, image, 5, image]])
    attention = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]])
    cleared, seen = picture_inputs(ids, attention, [(one, other), (one, other)], processor)
    assert cleared.tolist() == [[9, image, image, 5, image], [pad, image, image, 5, pad]]
    assert seen["image_grid_thw"].tolist() == [[1, 4, 2], [1, 2, 2], [1, 4, 2]] and seen["num_images"] == [2, 1]
    assert seen["mm_token_type_ids"].tolist() == [[0, 1, 1, 0, 1], [0, 1, 1, 0, 0]]
    assert torch.equal(seen["pixel_values"][:8], seen["pixel_values"][12:])
    with pytest.raises(ValueError, match="row 0 has 3 tokens of pictures"):
        picture_inputs(ids[:1], attention[:1], [(one,)], processor)


BLIND = [
    ({"advantage": "gae"}, "advantage 'gae', whose critic reads text"),
    ({"window_turns": 1}, "window_turns 1"),
    ({"context": "actions_so_far"}, "context 'actions_so_far'"),
    ({"use_vllm": True}, "use_vllm True: vLLM is sent"),
    ({"one_step_off_policy": True}, "one_step_off_policy True"),
]


@pytest.mark.parametrize(("options", "named"), BLIND)
def test_what_cannot_see_is_refused_by_name(tmp_path: Path, options: Any, named: str) -> None:
    with pytest.raises(OptionError, match=f"observation is 'image' and {named}"):
        vision_config(tmp_path, StarPOConfig, **options)


def test_models_and_options_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="the reference of A\\*-PO reads text"):
        vision_config(tmp_path, AStarPOConfig)
    with pytest.raises(ValueError, match="image_size is 56, which observation 'text' does not read"):
        vision_config(tmp_path, observation="text")
    with pytest.raises(UnsupportedModelError, match="observation is 'image', but 'qwen2'"):
        vision_trainer(tmp_path, model=small_model())
    with pytest.raises(UnsupportedModelError, match="reads more than text.*set observation='image'"):
        small_trainer(tmp_path, model=vision_model())
    with pytest.raises(ValueError, match="observation is 'text', but env makes an AgentTurns with 'image'"):
        small_trainer(tmp_path, bandit)
