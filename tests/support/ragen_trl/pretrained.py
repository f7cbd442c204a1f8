"""Short trainings of a pretrained model: options, and a reward."""

from collections.abc import Sequence
from typing import Any

from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.trainers import SMALL

SHORT: dict[str, Any] = {
    **{name: value for name, value in SMALL.items() if name != "beta"},
    **{"temperature": 0.7, "max_actions_per_turn": 2, "max_reply_length": 8, "max_completion_length": 200},
    **{"per_device_train_batch_size": 4, "num_generations": 2, "max_steps": 3, "learning_rate": 1e-4},
}


def variety(trajectory: Sequence[Trajectory], **_: Any) -> list[float]:
    """A reward that differs within a group, so that there is something to learn: a number made of the tokens."""
    return [(sum(one.token_ids) % 97) / 97 for one in trajectory]
