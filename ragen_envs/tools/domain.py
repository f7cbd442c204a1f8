"""What the domains share: tables and tools over them, tasks with the calls that solve them, and a second wording.

A domain's tools are methods of its class. Their second wording has other names of tools and arguments and other
descriptions for the same effects: tools that a model has never seen, in a domain that it knows.
"""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ragen_envs.calling.tool import Call, Tool, ToolError
from ragen_envs.tools.database import Database

LENGTHS = (2, 3, 4, 5, 6)
"""How many calls tasks need."""

Words = Mapping[str, tuple[str, str, Mapping[str, tuple[str, str]]]]
"""For each tool: another name, another description, and another name and description of each argument."""


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
    """Tables, tools and tasks of one domain.

    Args:
        rng: Draws the rows.
    """

    script: ClassVar[str]
    """SQL that makes the tables."""
    purpose: ClassVar[str]
    other_words: ClassVar[Words]
    contents: ClassVar[tuple[str, ...]]
    """Queries whose results, each in order, are the state that is compared."""
    lookups: ClassVar[tuple[str, ...]]
    """Names of the tools that change nothing."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.database = Database(self.script)
        self._fill(rng)

    @property
    @abc.abstractmethod
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The tools in their first wording."""

    @abc.abstractmethod
    def _fill(self, rng: np.random.Generator) -> None:
        """Draws the rows."""

    @abc.abstractmethod
    def draw(self, rng: np.random.Generator, length: int) -> Task:
        """Draws a task that needs so many calls."""

    @abc.abstractmethod
    def values(self, argument: str) -> Sequence[Any]:
        """What a random call may give for an argument (first wording); at least one value."""

    def state(self) -> tuple[Any, ...]:
        """What is compared with the state to reach."""
        return tuple(tuple(self.database.rows(query)) for query in self.contents)

    def tools(self, other: bool) -> tuple[Tool, ...]:
        """The tools.

        Args:
            other: Whether in the second wording.
        """
        found = tuple(map(Tool.of, self.functions))
        return tuple(reworded(tool, self.other_words) for tool in found) if other else found

    def carry_out(self, made: Call) -> str:
        """The result of a call in the first wording."""
        found: str = getattr(self, made.name)(**made.arguments)
        return found

    def _only(self, query: str, *values: object, what: str) -> tuple[Any, ...]:
        """The row that a query finds.

        Raises:
            ToolError: If there is none.
        """
        row = self.database.row(query, *values)
        if row is None:
            raise ToolError(f"there is no such {what}")
        return row


def spelled(made: Call, words: Words, other: bool) -> Call:
    """A call of the first wording in the wording that is played."""
    if not other:
        return made
    name, _, arguments = words[made.name]
    return Call(name, {arguments[argument][0]: value for argument, value in made.arguments.items()})


def reworded(tool: Tool, words: Words) -> Tool:
    """The same tool in the second wording."""
    name, description, arguments = words[tool.name]
    properties = {
        arguments[argument][0]: {**schema, "description": arguments[argument][1]}
        for argument, schema in tool.parameters["properties"].items()
    }
    required = [arguments[argument][0] for argument in tool.parameters.get("required", ())]
    parameters = {**tool.parameters, "properties": properties, **({"required": required} if required else {})}
    back = {new: argument for argument, (new, _) in arguments.items()}
    return replace(tool, name=name, description=description, parameters=parameters, run=partial(_run, tool.run, back))


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
