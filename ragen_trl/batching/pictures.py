"""Pictures of rows as a vision model takes them: made for the rows of a pass, over the whole sequence.

Until then a batch has a list, ``pictures``, in the order of their tokens, which is shuffled, split, filtered and packed
with the rows. TRL makes such tensors for prompts only, and none for a ``rollout_func``.
"""

from collections.abc import Sequence
from typing import Any

import torch

from ragen_trl.policies.vision import PictureProcessor
from ragen_trl.trajectory import Picture


def picture_inputs(
    ids: torch.Tensor, attention: torch.Tensor, pictures: Sequence[Sequence[Picture]], processor: PictureProcessor
) -> tuple[torch.Tensor, dict[str, Any]]:
    """What TRL's scoring hands to a vision model for rows of (b, n) tokens and their pictures.

    Rows that are filler keep their prompt only, and with it the pictures of the prompt. Returned are the ids, in which
    parts of pictures that nobody reads are padding, and ``pixel_values``, ``image_grid_thw`` and ``num_images`` of the
    pictures that are read, and ``mm_token_type_ids``, (b, n), 1 at parts of pictures.
    """
    parts = ids == processor.image_id
    read = parts & attention.bool()
    shown: list[Picture] = []
    counts: list[int] = []
    for left, of_row in zip(read.sum(dim=1).tolist(), pictures, strict=True):
        before = len(shown)
        for picture in of_row:
            if left <= 0:
                break
            rows, columns = processor.grid(picture)
            shown.append(picture)
            left -= rows * columns
        counts.append(len(shown) - before)
    ids = ids.masked_fill(parts & ~read, processor.pad_id)
    if not shown:
        return ids, {}
    pixels, grids = processor.patches(shown)
    return ids, {
        "pixel_values": pixels.to(ids.device),
        "image_grid_thw": grids.to(ids.device),
        "num_images": counts,
        "mm_token_type_ids": read.long(),
    }
