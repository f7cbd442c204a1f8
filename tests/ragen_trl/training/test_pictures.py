"""Training on pictures: the trainer computes what the sampler did, whatever happens to the rows in between."""

from pathlib import Path

import pytest
import torch
from transformers import Qwen2VLImageProcessorPil

from ragen_trl import StarPOSConfig
from ragen_trl.trajectory import Picture
from tests.support.ragen_trl.trainers import LastRollout, logged
from tests.support.ragen_trl.vision import (
    frames,
    processor_of,
    vision_model,
    vision_trainer,
)


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
    assert (model.model.visual.patch_embed.proj.weight - before).abs().max() > 1e-3


def test_a_saved_model_has_its_image_processor(tmp_path: Path) -> None:
    trainer = vision_trainer(tmp_path, frames, max_reply_length=1)
    trainer.save_model(str(tmp_path / "saved"))
    assert Qwen2VLImageProcessorPil.from_pretrained(tmp_path / "saved").patch_size == 14
    again = vision_trainer(tmp_path / "again", frames, model=str(tmp_path / "saved"), max_steps=1, max_reply_length=1)
    again.train()
    assert logged(again, "sampling/ratio_deviation_max")[0] < 1e-4


def test_filler_rows_show_the_pictures_of_their_prompts() -> None:
    processor = processor_of(vision_model())
    image, pad = processor.image_id, processor.pad_id
    one, other = Picture(56, 28, bytes(56 * 28 * 3)), Picture(28, 28, bytes([255] * 28 * 28 * 3))
    ids = torch.tensor([[9, image, image, 5, image], [pad, image, image, 5, image]])
    attention = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]])
    cleared, seen = processor.inputs(ids, attention, [(one, other), (one, other)])
    assert cleared.tolist() == [[9, image, image, 5, image], [pad, image, image, 5, pad]]
    assert seen["image_grid_thw"].tolist() == [[1, 4, 2], [1, 2, 2], [1, 4, 2]] and seen["num_images"] == [2, 1]
    assert seen["mm_token_type_ids"].tolist() == [[0, 1, 1, 0, 1], [0, 1, 1, 0, 0]]
    assert torch.equal(seen["pixel_values"][:8], seen["pixel_values"][12:])
