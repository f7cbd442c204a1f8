"""What the domains share: rows and tools over them, tasks with the calls that solve them, and a second wording.

A domain's tools are methods of its class. Their second wording has other names of tools and arguments and other
descriptions for the same effects: tools that a model has never seen, in a domain that it knows.
"""

import abc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import tomllib

from ragen_envs.calling.tool import Call, Tool, ToolError

Row = TypeVar("Row")

LENGTHS = (2, 3, 4, 5, 6)
"""How many calls tasks need."""

WORDS: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("second_wording.toml").read_text(encoding="utf-8"))
"""For each tool: another `name` and `description`, and for each of its `arguments` the two in a list."""


@dataclass(frozen=True)
class Task:
    """What is asked for.

    Attributes:
        text: In words.
        calls: A shortest way, in the first wording: each call needs only what the task and earlier results say.
    """

    text: str
    calls: tuple[Call, ...]


def call(name: str, /, **arguments: Any) -> Call:
    """A call in the first wording."""
    return Call(name, arguments)


class Domain(abc.ABC):
    """Rows, tools and tasks of one domain.

    Args:
        rng: Draws the rows.
    """

    purpose: ClassVar[str]
    lookups: ClassVar[tuple[str, ...]]
    """Names of the tools that change nothing."""
    changes: ClassVar[tuple[str, ...]]
    """Names of the others."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._fill(rng)

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The tools in their first wording."""
        return tuple(getattr(self, name) for name in (*self.lookups, *self.changes))

    @abc.abstractmethod
    def _fill(self, rng: np.random.Generator) -> None:
        """Draws the rows."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""

    @abc.abstractmethod
    def values(self, argument: str) -> Sequence[Any]:
        """What a random call may give for an argument (first wording); at least one value."""

    @abc.abstractmethod
    def state(self) -> Any:
        """What is compared with the state to reach."""

    def tools(self, other: bool) -> tuple[Tool, ...]:
        """The tools.

        Args:
            other: Whether in the second wording.
        """
        found = tuple(map(Tool.of, self.functions))
        return tuple(map(reworded, found)) if other else found

    def carry_out(self, made: Call) -> str:
        """The result of a call in the first wording."""
        found: str = getattr(self, made.name)(**made.arguments)
        return found


def find(what: str, rows: Iterable[Row], **wanted: object) -> Row:
    """The first row with these values.

    Args:
        what: What to call the row.
        rows: The rows.
        wanted: Values by the names of their fields.

    Raises:
        ToolError: If there is none.
    """
    for row in rows:
        if all(getattr(row, name) == value for name, value in wanted.items()):
            return row
    raise ToolError(f"there is no such {what}")


def spelled(made: Call, other: bool) -> Call:
    """A call of the first wording in the wording that is played."""
    if not other:
        return made
    words = WORDS[made.name]
    return Call(words["name"], {words["arguments"][key][0]: value for key, value in made.arguments.items()})


def reworded(tool: Tool) -> Tool:
    """The same tool in the second wording."""
    words = WORDS[tool.name]
    names = {argument: name for argument, (name, _) in words["arguments"].items()}
    properties = {
        names[argument]: {**schema, "description": words["arguments"][argument][1]}
        for argument, schema in tool.parameters["properties"].items()
    }
    required = [names[argument] for argument in tool.parameters["required"]]
    parameters = {**tool.parameters, "properties": properties, "required": required}
    run = partial(_run, tool.run, {name: argument for argument, name in names.items()})
    return replace(tool, name=words["name"], description=words["description"], parameters=parameters, run=run)


def _run(function: Callable[..., Any], back: Mapping[str, str], /, **arguments: Any) -> Any:
    return function(**{back[name]: value for name, value in arguments.items()})


def numbers(rng: np.random.Generator, count: int) -> list[int]:
    """So many different numbers of two digits, for identifiers."""
    return [int(number) for number in 10 + rng.permutation(90)[:count]]


def some(rng: np.random.Generator, values: Sequence[Any], count: int) -> list[Any]:
    """So many different values, in random order."""
    return [values[place] for place in rng.permutation(len(values))[:count]]


def one(rng: np.random.Generator, values: Sequence[Any]) -> Any:
    """One of the values."""
    return values[int(rng.integers(len(values)))]
