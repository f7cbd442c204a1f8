"""Replies from a vision model in training: contexts grow by text and pictures, and each is read once.

It is `TransformersPolicy` with three changes. In its contexts, the tokens of a picture have numbers of their own, equal
only for equal pictures, so only rows with the same pictures share passes. The vision tower looks at each different
picture once. And places are in three dimensions (`positions`). Tokens that stand for parts of pictures are never
sampled; like top-k and top-p, this does not change the log-probabilities that are reported.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from transformers import PreTrainedModel
from transformers.models.qwen3_vl.modeling_qwen3_vl import BaseModelOutputWithDeepstackFeatures

from ragen_trl.policies.model_calls import unwrapped
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vision.positions import SeenContext
from ragen_trl.policies.vision.processing import PictureProcessor
from ragen_trl.rollout.interfaces import Reply, Request
from ragen_trl.trajectory import Picture

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

_OWN = 2**40  # from here on, numbers are parts of pictures and no token ids
_MOST_PARTS = 2**16  # of one picture
_PICTURES_AT_ONCE = 64


class _Look(NamedTuple):
    """What the vision tower sees in a picture: (parts, width) for the first layer, and for layers after it."""

    parts: torch.Tensor
    deeper: list[torch.Tensor]


class VisionPolicy(TransformersPolicy):
    """Samples replies from Qwen2.5-VL or Qwen3-VL, as `TransformersPolicy` does; ``pictures`` makes patches."""

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
        self._numbers: dict[Picture, int] = {}
        self._seen: dict[int, SeenContext] = {}
        self._looks: dict[Picture, _Look] = {}

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts, one per sampling seed."""
        super().begin(seeds)
        self._numbers = {}
        self._seen = {row: SeenContext() for row in range(len(seeds))}

    def end(self, rows: Sequence[int]) -> None:
        """Let finished rows leave the batch and its cache."""
        super().end(rows)
        for row in rows:
            del self._seen[row]

    def _reply(self, requests: Sequence[Request]) -> list[Reply]:
        shown = dict.fromkeys(picture for request in requests for picture in request.pictures)
        self._looks = self._look_at(list(shown))
        try:
            return super()._reply([self._numbered(request) for request in requests])
        finally:
            self._looks = {}

    def _numbered(self, request: Request) -> Request:
        """The request with numbers of their own for parts of pictures; its context is told where they are."""
        row, seen = self._shared.rows[request.row], self._seen[request.row]
        seen.extend(len(row.tokens))
        ids, pictures, at = list(request.new_ids), iter(request.pictures), 0
        while at < len(ids):
            if ids[at] != self._pictures.image_id:
                seen.extend(len(seen.places) + 1)
                at += 1
                continue
            picture = next(pictures)
            first = _OWN + self._numbers.setdefault(picture, len(self._numbers)) * _MOST_PARTS
            rows, columns = self._pictures.grid(picture)
            seen.see(picture, rows, columns)
            ids[at : at + rows * columns] = range(first, first + rows * columns)
            at += rows * columns
        return replace(request, new_ids=tuple(ids))

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

    def _inputs(self, first: int, ids: torch.Tensor, slots: list[list[int]], position: torch.Tensor) -> dict[str, Any]:
        seen_of = {id(row): self._seen[number] for number, row in self._shared.rows.items()}
        read = self._shared.contexts[first : first + len(slots)]
        # One whose rows have all closed gets padding, which is nowhere.
        contexts = [seen_of[id(context.rows[0])] if context.rows else SeenContext() for context in read]
        spare = self._shared.cache.spare_slot
        places = [
            [(0, 0, 0) if slot == spare else seen.place(slot) for slot in of_row]
            for seen, of_row in zip(contexts, slots, strict=True)
        ]
        inputs = {
            "input_ids": ids.masked_fill(ids >= _OWN, self._pictures.image_id),
            "position_ids": torch.tensor(places, device=ids.device).permute(2, 0, 1),  # (3, b, n)
        }
        looks = [look for seen, of_row in zip(contexts, slots, strict=True) for look in self._parts(seen, of_row)]
        if looks:
            inputs["mm_encoder_outputs"] = {"image": _joined(looks)}
        return inputs

    def _parts(self, seen: SeenContext, slots: list[int]) -> list[_Look]:
        """The parts of pictures that are in these slots of a row, in order."""
        used = [slot for slot in slots if slot != self._shared.cache.spare_slot]
        if not used:
            return []
        found = []
        for picture, begin, count in seen.pictures:
            part = slice(max(used[0] - begin, 0), min(used[-1] + 1 - begin, count))
            if picture is not None and part.start < part.stop:
                look = self._looks[picture]
                found.append(_Look(look.parts[part], [layer[part] for layer in look.deeper]))
        return found


def _joined(looks: list[_Look]) -> Any:
    deeper = [list(layer) for layer in zip(*(look.deeper for look in looks), strict=True)]
    parts = [look.parts for look in looks]
    return BaseModelOutputWithDeepstackFeatures(pooler_output=parts, deepstack_features=deeper)
