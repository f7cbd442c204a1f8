"""Models that see (Qwen2.5-VL, Qwen3-VL): their pictures as patches and tokens, and replies with a kept KV cache.

The model's own image processor makes the patches, in its Pillow form; torchvision is not needed. The environment
decides how large a picture is (``image_size``): the processor only rounds it to whole tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from transformers.utils import IMAGE_PROCESSOR_NAME, cached_file

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


def picture_processor(
    model: str | PreTrainedModel, args: StarPOConfig, processing_class: Any
) -> tuple[PictureProcessor | None, PreTrainedTokenizerBase | None]:
    """The picture processor of a run and its tokenizer; with text, ``None`` and ``processing_class`` as given."""
    if args.observation == "text":
        return None, processing_class
    given = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    options = {name: given[name] for name in ("revision", "trust_remote_code") if name in given}
    config = AutoConfig.from_pretrained(model, **options) if isinstance(model, str) else model.config
    return load_processor(model, config, processing_class, options)


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


Place = tuple[int, int, int]


@dataclass
class SeenContext:
    """The pictures of one growing context, and where its tokens are: Qwen's rotary positions in three dimensions.

    A token of text is at the same place in time, height and width. The tokens of a picture that begins at place p are
    at (p, p + row, p + column), and what comes after it goes on at p + max(rows, columns). Transformers computes this
    for whole rows (`get_rope_index`); here a context grows.

    Attributes:
        places: Of the tokens up to the last picture's end and beyond, as far as `extend` was told.
        pictures: Each picture with the index of its first token and its number of tokens.
        shift: What is added to the index of a token after all of these to get its place; 0 or less.

    Example:
        >>> context = SeenContext()
        >>> context.extend(2)
        >>> context.places
        [(0, 0, 0), (1, 1, 1)]
        >>> context.see(None, 2, 2)
        >>> context.places[2:], context.place(6), context.shift
        ([(2, 2, 2), (2, 2, 3), (2, 3, 2), (2, 3, 3)], (4, 4, 4), -2)
    """

    places: list[Place] = field(default_factory=list)
    pictures: list[tuple[Picture | None, int, int]] = field(default_factory=list)
    shift: int = 0

    def extend(self, length: int) -> None:
        """The context has so many tokens; those that are new are text."""
        first = len(self.places)
        self.places += [(index + self.shift,) * 3 for index in range(first, length)]

    def see(self, picture: Picture | None, rows: int, columns: int) -> None:
        """A picture of so many rows and columns of tokens follows."""
        first = len(self.places)
        begin = first + self.shift
        self.pictures.append((picture, first, rows * columns))
        self.places += [(begin, begin + row, begin + column) for row in range(rows) for column in range(columns)]
        self.shift += max(rows, columns) - rows * columns

    def place(self, index: int) -> Place:
        """Where the token with this index is; after the last one that is known there is text."""
        return self.places[index] if index < len(self.places) else (index + self.shift,) * 3


class _Look(NamedTuple):
    """What the vision tower sees in a picture: (parts, width) for the first layer, and for layers after it."""

    parts: torch.Tensor
    deeper: list[torch.Tensor]


class VisionPolicy(TransformersPolicy):
    """Samples replies from Qwen2.5-VL or Qwen3-VL, as `TransformersPolicy` does, with two changes.

    The vision tower looks at each different picture of a turn once, and places are in three dimensions
    (`SeenContext`). Tokens that stand for parts of pictures are never sampled; like top-k and top-p, this does not
    change the log-probabilities that are reported. ``pictures`` makes patches.
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
        self._seen: dict[int, SeenContext] = {}
        self._looks: dict[Picture, _Look] = {}

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts, one per sampling seed."""
        super().begin(seeds)
        self._seen = {number: SeenContext() for number in range(len(seeds))}

    def end(self, rows: Sequence[int]) -> None:
        """Let finished rows leave the batch and its cache."""
        super().end(rows)
        for row in rows:
            del self._seen[row]

    def _reply(self, requests: Sequence[Request]) -> list[Reply]:
        for request in requests:
            self._see(request)
        self._looks = self._look_at(list(dict.fromkeys(picture for each in requests for picture in each.pictures)))
        try:
            return super()._reply(requests)
        finally:
            self._looks = {}

    def _see(self, request: Request) -> None:
        """Tell the context of a request where the pictures are that it brings."""
        row, seen = self._rows[request.row], self._seen[request.row]
        seen.extend(row.length + len(row.unfed))
        pictures, at = iter(request.pictures), 0
        while at < len(request.new_ids):
            if request.new_ids[at] != self._pictures.image_id:
                seen.extend(len(seen.places) + 1)
                at += 1
                continue
            picture = next(pictures)
            rows, columns = self._pictures.grid(picture)
            seen.see(picture, rows, columns)
            at += rows * columns

    def _look_at(self, pictures: list[Picture]) -> dict[Picture, _Look]:
        looks = {}
        for first in range(0, len(pictures), _PICTURES_AT_ONCE):
            some = pictures[first : first + _PICTURES_AT_ONCE]
            pixels, grids = (tensor.to(self.model.device) for tensor in self._pictures.patches(some))
            found = unwrapped(self.model).get_image_features(pixels, grids, return_dict=True)
            deeper = getattr(found, "deepstack_features", None) or []  # Qwen3-VL
            for place, picture in enumerate(some):
                looks[picture] = _Look(found.pooler_output[place], [layer[place] for layer in deeper])
        return looks

    def _inputs(
        self, rows: Sequence[Row], ids: torch.Tensor, slots: list[list[int]], position: torch.Tensor
    ) -> dict[str, Any]:
        used = [[slot for slot in of_row if slot != self._cache.spare_slot] for of_row in slots]  # padding is before
        places = []
        looks: list[_Look] = []
        for row, own, of_row in zip(rows, used, slots, strict=True):
            seen = self._seen[row.number]
            places.append([(0, 0, 0)] * (len(of_row) - len(own)) + [seen.place(slot) for slot in own])
            looks += self._parts(seen, own) if own else []
        inputs = {
            "input_ids": ids,
            "position_ids": torch.tensor(places, device=ids.device).permute(2, 0, 1),  # (3, b, n)
        }
        if looks:
            deeper = [list(layer) for layer in zip(*(look.deeper for look in looks), strict=True)]
            parts = [look.parts for look in looks]
            seen_parts = BaseModelOutputWithDeepstackFeatures(pooler_output=parts, deepstack_features=deeper)
            inputs["mm_encoder_outputs"] = {"image": seen_parts}
        return inputs

    def _parts(self, seen: SeenContext, slots: list[int]) -> list[_Look]:
        """The parts of pictures that are in these neighbouring slots of a row, in order."""
        found = []
        for picture, begin, count in seen.pictures:
            part = slice(max(slots[0] - begin, 0), min(slots[-1] + 1 - begin, count))
            if picture is not None and part.start < part.stop:
                look = self._looks[picture]
                found.append(_Look(look.parts[part], [layer[part] for layer in look.deeper]))
        return found
