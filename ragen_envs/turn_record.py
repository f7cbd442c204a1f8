"""What became of one reply: the notes that `AgentTurns` takes while it plays a turn.

Left out: the messages and the information made of them, which are written in ``turns.py``.
"""

from dataclasses import dataclass, field


@dataclass
class TurnRecord:
    """What became of one reply."""

    actions: list[str] = field(default_factory=list)
    invalid: list[str] = field(default_factory=list)
    surplus: list[str] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    env_reward: float = 0.0
    is_readable: bool = False
    is_effective: bool = False
    penalty: float = 0.0

    @property
    def is_good(self) -> bool:
        """Whether the turn costs no penalty: readable, with a valid action and no invalid one."""
        return self.is_readable and bool(self.actions) and not self.invalid
