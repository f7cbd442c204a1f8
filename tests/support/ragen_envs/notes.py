"""A small environment with tools, and the replies that call them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ragen_envs import ToolEnv
from ragen_envs.calling.tool import ToolError, write_call


class Notes(ToolEnv):
    """Keep notes: the task is to write one with a number that only `secret` tells."""

    purpose = "Keep the notes."
    notes: list[str]

    @property
    def tools(self) -> Sequence[Callable[..., Any]]:
        """All of them."""
        return (self.write, self.secret, self.read, self.fail)

    def write(self, text: str, times: int = 1) -> str:
        """Write a note.

        Args:
            text: What to write.
            times: How often.
        """
        self.notes += [text] * times
        return "written"

    def secret(self) -> dict[str, int]:
        """Tell the secret number."""
        return {"number": self.number}

    def read(self) -> str:
        """Read all notes."""
        return "\n".join(self.notes)

    def fail(self, politely: bool) -> str:
        """Fail.

        Args:
            politely: Whether with a message for the model.
        """
        raise ToolError("not today") if politely else ZeroDivisionError("by zero")

    def _start(self, options: Mapping[str, Any]) -> str:
        self.notes = []
        self.number = int(self.np_random.integers(10, 100))
        return "Write the secret number."

    def _judge(self) -> tuple[float, bool]:
        done = self.notes == [str(self.number)]
        return float(done), done


def calls(*made: tuple[str, Mapping[str, Any]]) -> str:
    """A reply with calls of tools."""
    return "\n".join(f"<tool_call>{write_call(*call)}</tool_call>" for call in made)
