"""Wrong pictures, to compare with: a model that does as well with them does not look.

Texts and environments stay as they are; so do the recorded pictures, which are what the environment showed.
"""

from collections.abc import Sequence
from dataclasses import replace

from ragen_trl.rollout.interfaces import Policy, PolicyAround, Reply, Request
from ragen_trl.trajectory import Picture


class WrongPictures(PolicyAround):
    """A policy that is shown other pictures than the environment's.

    Args:
        inner: Answers.
        kind: "blank": grey pictures of the same size. "other": what the next row that was asked for a reply sees or saw
            last, the first row after the last one. Rows that look the same are passed over: samples of one start state
            would show a model its own. If all do, the rows of the rollout before follow, as they looked last.

    Raises:
        ValueError: If the kind is another one, or if no other row has shown another picture.
    """

    def __init__(self, inner: Policy, kind: str) -> None:
        if kind not in ("blank", "other"):
            raise ValueError(f"pictures is {kind!r}; choose 'own', 'blank' or 'other'")
        super().__init__(inner)
        self._kind = kind
        self._latest: dict[int, tuple[Picture, ...]] = {}
        self._before: tuple[tuple[Picture, ...], ...] = ()  # of the rollout before

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts."""
        self._before, self._latest = tuple(self._latest.values()) or self._before, {}
        super().begin(seeds)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Answer as if the pictures were others."""
        self._latest |= {request.row: request.pictures for request in requests}
        return super().reply([replace(request, pictures=self._instead(request)) for request in requests])

    def _instead(self, request: Request) -> tuple[Picture, ...]:
        if self._kind == "blank" or not request.pictures:
            return tuple(replace(picture, pixels=bytes([128]) * len(picture.pixels)) for picture in request.pictures)
        rows = sorted(self._latest, key=lambda row: (row <= request.row, row))
        for others in (*(self._latest[row] for row in rows), *self._before):
            if others != request.pictures:
                return others
        raise ValueError("pictures is 'other', but no other episode has shown another; play more episodes at a time")
