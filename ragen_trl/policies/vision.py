"""Models that see (Qwen2.5-VL, Qwen3-VL): their pictures as patches and tokens, and replies with a kept KV cache.

The model's own image processor makes the patches, in its Pillow form; torchvision is not needed. The environment
decides how large a picture is (``image_size``): the processor only rounds it to whole tokens.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    ProcessorMixin,
)
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.policies.model_calls import unwrapped
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import Row, TransformersPolicy
from ragen_trl.rollout.interfaces import Reply, Request
from ragen_trl.trajectory import Picture

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

_PICTURES_AT_ONCE = 64


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
        self._grids: dict[tuple[int, int], list[int]] = {}

    def grid_of_patches(self, picture: Picture) -> list[int]:
        """Frames, rows and columns of a picture's patches."""
        size = picture.height, picture.width
        if size not in self._grids:
            self._grids[size] = self.patches([picture])[1][0].tolist()
        return self._grids[size]

    def grid(self, picture: Picture) -> tuple[int, int]:
        """Rows and columns of a picture's tokens."""
        _, rows, columns = self.grid_of_patches(picture)
        return rows // self._processor.merge_size, columns // self._processor.merge_size

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
        places = {picture: place for place, picture in enumerate(dict.fromkeys(pictures))}
        pixels = [np.frombuffer(one.pixels, np.uint8).reshape(one.height, one.width, 3).copy() for one in places]
        size = {"shortest_edge": self._unit**2, "longest_edge": self._processor.size["longest_edge"]}
        made = self._processor(images=pixels, size=size, return_tensors="pt")
        grids = made["image_grid_thw"]
        different = made["pixel_values"].split(grids.prod(dim=1).tolist())
        order = [places[picture] for picture in pictures]
        return torch.cat([different[place] for place in order]), grids[order]

    def inputs(
        self, ids: torch.Tensor, attention: torch.Tensor, pictures: Sequence[Sequence[Picture]]
    ) -> tuple[torch.Tensor, dict[str, Any]]:
        """What TRL's scoring hands to a vision model for rows of (b, n) tokens and their pictures.

        Rows that are filler keep their prompt only, and with it the pictures of the prompt. Returned are the ids, in
        which parts of pictures that nobody reads are padding, and ``pixel_values``, ``image_grid_thw`` and
        ``num_images`` of the pictures that are read, and ``mm_token_type_ids``, (b, n), 1 at parts of pictures.
        """
        parts = ids == self.image_id
        read = parts & attention.bool()
        shown: list[Picture] = []
        counts: list[int] = []
        for left, of_row in zip(read.sum(dim=1).tolist(), pictures, strict=True):
            before = len(shown)
            for picture in of_row:
                if left <= 0:
                    break
                rows, columns = self.grid(picture)
                shown.append(picture)
                left -= rows * columns
            counts.append(len(shown) - before)
        ids = ids.masked_fill(parts & ~read, self.pad_id)
        if not shown:
            return ids, {}
        pixels, grids = self.patches(shown)
        return ids, {
            "pixel_values": pixels.to(ids.device),
            "image_grid_thw": grids.to(ids.device),
            "num_images": counts,
            "mm_token_type_ids": read.long(),
        }

    def save(self, folder: Path) -> None:
        """Write the image processor beside a saved model."""
        self._processor.save_pretrained(folder)


def picture_processor(
    model: str | PreTrainedModel, args: StarPOConfig, processing_class: Any
) -> tuple[PictureProcessor | None, PreTrainedTokenizerBase | None]:
    """The picture processor of a run and its tokenizer; with text, ``None`` and ``processing_class`` as given.

    ``processing_class`` may be a tokenizer, a processor, or ``None`` to load the tokenizer.
    """
    if args.observation == "text":
        return None, processing_class
    given = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    options = {name: given[name] for name in ("revision", "trust_remote_code") if name in given}
    config = AutoConfig.from_pretrained(model, **options) if isinstance(model, str) else model.config
    if isinstance(processing_class, ProcessorMixin):
        tokenizer = processing_class.tokenizer
        return PictureProcessor(processing_class.image_processor, tokenizer, config), tokenizer
    from transformers import Qwen2VLImageProcessorPil  # older releases, which train on text, do not have it

    source, vision = config.name_or_path, config.vision_config
    tokenizer = processing_class or AutoTokenizer.from_pretrained(
        source, truncation_side="left", padding_side="left", **options
    )
    try:
        images = Qwen2VLImageProcessorPil.from_pretrained(source, **options)
    except OSError:  # a model that was built in memory, or saved without it
        sizes = {"patch_size": vision.patch_size, "temporal_patch_size": vision.temporal_patch_size}
        images = Qwen2VLImageProcessorPil(merge_size=vision.spatial_merge_size, **sizes)
    return PictureProcessor(images, tokenizer, config), tokenizer


def local_policy(
    model: PreTrainedModel,
    chat: "Chat",
    sampling: Sampling,
    autocast: Callable[[], AbstractContextManager[object]],
    pictures: PictureProcessor | None,
    merge_lora: bool = False,
) -> TransformersPolicy:
    """The policy of a model in this process; one that sees, with a picture processor."""
    if pictures is None:
        return TransformersPolicy(model, chat, sampling, autocast, merge_lora)
    return VisionPolicy(model, chat, sampling, pictures, autocast, merge_lora)


class VisionPolicy(TransformersPolicy):
    """Samples replies from Qwen2.5-VL or Qwen3-VL, as `TransformersPolicy` does, with two changes.

    The vision tower looks at each different picture of a turn once, and places are in three dimensions, which the
    model computes from the whole context (``get_rope_index``). Tokens that stand for parts of pictures are never
    sampled; like top-k and top-p, this does not change the log-probabilities that are reported.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        chat: "Chat",
        sampling: Sampling,
        pictures: PictureProcessor,
        autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
        merge_lora: bool = False,
    ) -> None:
        super().__init__(model, chat, replace(sampling, never=pictures.never_sampled), autocast, merge_lora)
        self._pictures = pictures
        self._places = torch.empty(0)  # (episodes, tokens, 3): time, height and width
        self._parts: dict[int, torch.Tensor] = {}  # of pictures not yet read: (1 + deeper, parts, width) of an episode

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`."""
        super().begin(seeds)
        self._places = torch.zeros(len(seeds), 0, 3, dtype=torch.long, device=self.model.device)

    def _reply(self, requests: Sequence[Request]) -> list[Reply]:
        for request in requests:
            self._set_places(request)
        looks = self._look_at(list(dict.fromkeys(picture for each in requests for picture in each.pictures)))
        self._parts = {
            request.row: torch.cat([looks[picture] for picture in request.pictures], dim=1)
            for request in requests
            if request.pictures
        }
        return super()._reply(requests)

    def _set_places(self, request: Request) -> None:
        """Where the tokens of a request's context are, and those of the reply to come, which are text."""
        ids = torch.tensor([request.context])
        shown = [*(picture for turn in request.turns for picture in turn.pictures), *request.pictures]
        grids = torch.tensor([self._pictures.grid_of_patches(picture) for picture in shown])
        places = torch.arange(ids.shape[1]).expand(3, 1, -1)
        if len(grids):
            seen = (ids == self._pictures.image_id).long()
            places, _ = unwrapped(self.model).model.get_rope_index(ids, seen, image_grid_thw=grids)
        following = 1 + places.max() + torch.arange(self.sampling.max_tokens)
        whole = torch.cat([places[:, 0].T, following[:, None].expand(-1, 3)])
        missing = len(whole) - self._places.shape[1]
        if missing > 0:
            self._places = torch.nn.functional.pad(self._places, (0, 0, 0, missing))
        self._places[request.row, : len(whole)] = whole.to(self._places.device)

    def _look_at(self, pictures: list[Picture]) -> dict[Picture, torch.Tensor]:
        """What the vision tower sees in each picture: (1 + deeper, parts, width), for the first layer and others."""
        looks = {}
        for first in range(0, len(pictures), _PICTURES_AT_ONCE):
            some = pictures[first : first + _PICTURES_AT_ONCE]
            pixels, grids = (tensor.to(self.model.device) for tensor in self._pictures.patches(some))
            found = unwrapped(self.model).get_image_features(pixels, grids, return_dict=True)
            deeper = getattr(found, "deepstack_features", None) or []  # Qwen3-VL
            for place, picture in enumerate(some):
                looks[picture] = torch.stack([found.pooler_output[place], *(layer[place] for layer in deeper)])
        return looks

    def _inputs(self, rows: Sequence[Row], ids: torch.Tensor, position: torch.Tensor) -> dict[str, Any]:
        numbers = torch.tensor([row.number for row in rows], device=position.device)
        inputs: dict[str, Any] = {
            "input_ids": ids,
            "position_ids": self._places[numbers[:, None], position].permute(2, 0, 1),  # (3, b, n)
        }
        counts = (ids == self._pictures.image_id).sum(dim=1).tolist()  # parts that a row reads in this pass
        looks = []
        for row, count in zip(rows, counts, strict=True):
            if count:
                looks.append(self._parts[row.number][:, :count])
                self._parts[row.number] = self._parts[row.number][:, count:]
        if looks:
            parts, *deeper = (list(layer) for layer in zip(*looks, strict=True))
            seen = BaseModelOutputWithDeepstackFeatures(pooler_output=parts, deepstack_features=deeper)
            inputs["mm_encoder_outputs"] = {"image": seen}
        return inputs
