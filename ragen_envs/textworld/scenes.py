r"""What a game shows after some commands.

A `Scene` is an immutable value that depends only on the game's file and the commands so far, so an environment can be
copied, pickled and stepped in any process. A few interpreters per file are kept here; one that stands on the way to
the wanted scene goes on from there. (Copying an interpreter takes ten times as long as playing the commands again.)
"""

import contextlib
import functools
import os
import re
import threading
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen_envs.textworld.alfworld import short_names
from ragen_envs.textworld.games import PARSING, DamagedGameError, MissingTextWorldError, check_installed

Commands = tuple[str, ...]
MOST_INTERPRETERS = 4  # of one game, in one process; each takes 1.8 MB
_END = re.compile(r"\*\*\* (The End|You lost!) \*\*\*")
_SCORE = "Your score has just gone up by"  # info and rewards say it
_STATUS = re.compile(r"^>.*\Z", re.MULTILINE | re.DOTALL)
_TASK = re.compile(r"Your task is to: *(.+)")


@dataclass(frozen=True)
class Scene:
    """What a game shows after some commands.

    Attributes:
        text: The answer to the last command, or what there is to see at the beginning; without blank lines.
        objective: The task in words.
        commands: The admissible commands, sorted.
        plan: Commands that lead to the end from here; () if none do, or if nobody asked for them.
        won: The task is done.
        lost: It cannot be done any more, and the game is over.
    """

    text: str
    objective: str
    commands: Commands
    plan: Commands
    won: bool
    lost: bool


@functools.lru_cache(maxsize=8192)
def scene(path: str, commands: Commands, planned: bool) -> Scene:
    """The scene after some commands from the beginning of a game.

    Args:
        path: The game's file.
        commands: Admissible commands.
        planned: Whether the scene has a plan. It costs little in a game of TextWorld's (``.z8``) and the time of a
            planner in one of ALFWorld's (``.tw-pddl``).

    Raises:
        MissingTextWorldError: If a package is not installed.
        DamagedGameError: If the file is no game.
        OSError: If the file cannot be read.
    """
    return _interpreters(path, planned).scene_after(commands)


@functools.lru_cache(maxsize=32)
def _interpreters(path: str, planned: bool) -> "_Interpreters":
    return _Interpreters(path, planned)


if os.name == "posix":  # an interpreter of the parent may be in the middle of a command, and its lock held for ever
    os.register_at_fork(after_in_child=_interpreters.cache_clear)


class _Interpreters:
    """Those of one game, each at the end of a way."""

    def __init__(self, path: str, planned: bool) -> None:
        self._path, self._planned = path, planned
        self._idle: list[tuple[Commands, Any, Any]] = []  # commands so far, interpreter, its last answer
        self._lock = threading.Lock()

    def scene_after(self, commands: Commands) -> Scene:
        with self._lock, _answering(self._path):
            done, game, answer = self._furthest(commands)
            for command in commands[len(done) :]:
                answer, _, _ = game.step(command)
            self._idle.append((commands, game, answer))
        return _seen(answer, is_first=not commands)

    def _furthest(self, commands: Commands) -> tuple[Commands, Any, Any]:
        """The interpreter that is furthest on the way to the scene; at the beginning if there is none."""
        on_the_way = [entry for entry in self._idle if commands[: len(entry[0])] == entry[0]]
        if on_the_way:
            entry = max(on_the_way, key=lambda entry: len(entry[0]))
            self._idle.remove(entry)
            return entry
        if len(self._idle) < MOST_INTERPRETERS:
            game = _start(self._path, self._planned)
        else:
            game = self._idle.pop(0)[1]
        return (), game, game.reset()


def _answering(path: str) -> contextlib.AbstractContextManager[Any]:
    """What is held while a game answers: ALFWorld's parse every text, TextWorld's own are parsed when they start."""
    return PARSING if Path(path).suffix == ".tw-pddl" else contextlib.nullcontext()


def _start(path: str, planned: bool) -> Any:
    """A new interpreter of a game."""
    check_installed()
    # The interpreter warns that it knows no scores and moves of these games; TextWorld does.
    with PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import textworld

        wanted = {"admissible_commands": True, "policy_commands": planned, "objective": True, "won": True, "lost": True}
        try:
            game = textworld.start(path, textworld.EnvInfos(**wanted))
        except ImportError as error:
            needed = "pip install 'ragen-trl[alfworld]'"
            raise MissingTextWorldError(f"{path} needs the planner of TextWorld; {needed}") from error
        except (ValueError, KeyError) as error:
            raise DamagedGameError(path, error) from error
    if Path(path).suffix == ".tw-pddl":
        infos = game._entity_infos
        for name, short in short_names(infos).items():
            infos[name].name = short
    return game


def _seen(answer: Any, is_first: bool) -> Scene:
    text = str(answer.feedback)
    objective = str(answer.objective or "").strip()
    if is_first:
        stated = _TASK.search(text)
        objective = objective or (stated[1] if stated else "")
        text = text.partition(objective)[2] if objective and not stated else text  # it follows a large title
    end = _END.search(text)
    text = text[: end.start()] if end else _STATUS.sub("", text)
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return Scene(
        text=_plain("\n".join([line for line in lines if line and not line.startswith(_SCORE)])),
        objective=_plain(" ".join(objective.split())),
        commands=tuple(map(_plain, answer.admissible_commands)),
        plan=tuple(_tidy(answer.policy_commands or (), answer.admissible_commands)),
        won=bool(answer.won),
        lost=bool(answer.lost),
    )


def _tidy(plan: Sequence[str], admissible: Sequence[str]) -> Commands:
    """The plan, if the first command of it can be given."""
    return tuple(map(_plain, plan)) if plan and plan[0] in admissible else ()


def _plain(text: str) -> str:
    """The text in printable ASCII; what is not becomes a question mark."""
    return text.encode("ascii", "replace").decode()
