"""Pictures as a vision model takes them: patches of pixels, and the control tokens that stand for them in a text.

The model's own image processor makes the patches, in its Pillow form; torchvision is not needed. The environment
decides how large a picture is (``image_size``): the processor only rounds it to whole tokens.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import (
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.utils import IMAGE_PROCESSOR_NAME, cached_file

from ragen_trl.trajectory import Picture


class PictureProcessor:
    """Makes patches and control tokens of pictures, from the model's image processor, tokenizer and configuration.

    Attributes:
        image_id: The token that stands for a part of a picture, as often as it has parts.
        never_sampled: Tokens that would be read as parts of pictures or videos.
    """

    def __init__(self, image_processor: Any, tokenizer: PreTrainedTokenizerBase, config: PretrainedConfig) -> None:
        self._processor = image_processor
        self._unit = image_processor.patch_size * image_processor.merge_size  # pixels of a token's side
        self.image_id: int = config.image_token_id
        self.pad_id: int = tokenizer.pad_token_id
        self.never_sampled: tuple[int, ...] = (config.image_token_id, config.video_token_id)
        ids = (config.vision_start_token_id, config.image_token_id, config.vision_end_token_id)
        self._begin, self._part, self._end = tokenizer.convert_ids_to_tokens(list(ids))
        self._grids: dict[tuple[int, int], tuple[int, int]] = {}

    def grid(self, picture: Picture) -> tuple[int, int]:
        """Rows and columns of a picture's tokens."""
        size = picture.height, picture.width
        if size not in self._grids:
            _, patches = self.patches([picture])
            _, rows, columns = (patches[0] // torch.tensor([1, *[self._processor.merge_size] * 2])).tolist()
            self._grids[size] = rows, columns
        return self._grids[size]

    def text(self, picture: Picture) -> str:
        """What stands in a message for a picture, as the model's own template and processor write it."""
        rows, columns = self.grid(picture)
        return f"{self._begin}{self._part * (rows * columns)}{self._end}"

    def patches(self, pictures: Sequence[Picture]) -> tuple[torch.Tensor, torch.Tensor]:
        """Patches of at least one picture.

        Returns:
            ``pixel_values``, (patches of all pictures, numbers of a patch), float32, and ``image_grid_thw``,
            (pictures, 3): frames, rows and columns of each picture's patches. Equal pictures are processed once.
        """
        different = list(dict.fromkeys(pictures))
        pixels = [np.frombuffer(one.pixels, np.uint8).reshape(one.height, one.width, 3).copy() for one in different]
        size = {"shortest_edge": self._unit**2, "longest_edge": self._processor.size["longest_edge"]}
        made = self._processor(images=pixels, size=size, return_tensors="pt")
        grids = made["image_grid_thw"]
        of = dict(zip(different, made["pixel_values"].split(grids.prod(dim=1).tolist()), strict=True))
        places = {picture: place for place, picture in enumerate(different)}
        return (
            torch.cat([of[picture] for picture in pictures]),
            grids[[places[picture] for picture in pictures]],
        )

    def save(self, folder: Path) -> None:
        """Write the image processor beside a saved model."""
        self._processor.save_pretrained(folder)


def load_processor(
    model: str | PreTrainedModel, config: PretrainedConfig, given: Any, options: Mapping[str, Any]
) -> tuple[PictureProcessor, PreTrainedTokenizerBase]:
    """The picture processor and the tokenizer of a vision model (path, hub id or the model itself).

    ``given`` is the ``processing_class`` of a trainer: a tokenizer, a processor, or ``None`` to load the tokenizer.
    """
    source = model if isinstance(model, str) else config.name_or_path
    if isinstance(given, ProcessorMixin):
        return PictureProcessor(given.image_processor, given.tokenizer, config), given.tokenizer
    if given is None:
        given = AutoTokenizer.from_pretrained(source, truncation_side="left", padding_side="left", **options)
    return PictureProcessor(_image_processor(source, config, options), given, config), given


def _image_processor(source: str, config: PretrainedConfig, options: Mapping[str, Any]) -> Any:
    from transformers import Qwen2VLImageProcessorPil  # older releases, which train on text, do not have it

    missing = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_connection_errors": False}
    if source and cached_file(source, IMAGE_PROCESSOR_NAME, **missing, **options) is not None:
        return Qwen2VLImageProcessorPil.from_pretrained(source, **options)
    vision = config.vision_config
    return Qwen2VLImageProcessorPil(
        patch_size=vision.patch_size,
        merge_size=vision.spatial_merge_size,
        temporal_patch_size=vision.temporal_patch_size,
    )
