"""Stage 1 of A*-PO among environments that fail: a failure is no sample of V*."""

from pathlib import Path
from typing import Any

import pytest

from ragen_trl.errors import NotFiniteError
from tests.support.ragen_trl.astar_runs import astar
from tests.support.ragen_trl.trainers import AnyReply, Lottery


class FallsOver(AnyReply):
    """Crashes in its first steps, of all copies together, as a server that is down for a while."""

    crashes = 0

    def step(self, action: str) -> Any:
        if FallsOver.crashes:
            FallsOver.crashes -= 1
            raise ConnectionError("the store is down")
        return super().step(action)


def falling_over() -> AnyReply:
    return FallsOver(Lottery(), think=False, max_turns=1, max_actions=9, max_actions_per_turn=1)


def test_a_failed_episode_is_played_again_and_never_taken_for_a_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash was stored as a return of -1 once, and stayed in the cache when the environment was repaired."""
    options = {"env_workers": 0, "max_steps": 1}
    healthy = astar(tmp_path / "healthy", falling_over, **options).estimate_values()[0]
    monkeypatch.setattr(FallsOver, "crashes", 3)
    again = astar(tmp_path / "again", falling_over, **options).estimate_values()[0]
    assert again.starts == healthy.starts
    monkeypatch.setattr(FallsOver, "crashes", 1000)
    broken = astar(tmp_path / "broken", falling_over, **options)
    with pytest.raises(NotFiniteError, match="has return nan; .* an environment that failed twice"):
        broken.estimate_values()
    monkeypatch.setattr(FallsOver, "crashes", 0)
    assert astar(tmp_path / "broken", falling_over, **options).estimate_values()[0].starts == healthy.starts
