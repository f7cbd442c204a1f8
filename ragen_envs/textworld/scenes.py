r"""What a game shows after some commands.

A `Scene` is an immutable value that depends only on the game's file and the commands so far, so an environment can be
copied, pickled and stepped in any process. An interpreter per file is kept here. (Copying one takes ten times as long
as playing the commands again.)
"""

import contextlib
import functools
import os
import re
import threading
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ragen_envs.textworld.games import PARSING, GameError, MissingTextWorldError, check_installed

Commands = tuple[str, ...]
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
        GameError: If the file is no game.
        OSError: If the file cannot be read.
    """
    return _player(path, planned).scene_after(commands)


@functools.lru_cache(maxsize=32)  # each takes 1.8 MB
def _player(path: str, planned: bool) -> "_Player":
    return _Player(path, planned)


if os.name == "posix":  # an interpreter of the parent may be in the middle of a command, and its lock held for ever
    os.register_at_fork(after_in_child=_player.cache_clear)


class _Player:
    """An interpreter of one game, which goes on from its last command, or begins again where that is on another way."""

    def __init__(self, path: str, planned: bool) -> None:
        self._path, self._planned = path, planned
        self._game: Any = None
        self._done: Commands | None = None
        self._lock = threading.Lock()

    def scene_after(self, commands: Commands) -> Scene:
        # ALFWorld's games parse every text with a parser that threads share, TextWorld's own only when they start.
        parsing = PARSING if Path(self._path).suffix == ".tw-pddl" else contextlib.nullcontext()
        with self._lock, parsing:
            self._game = self._game or _start(self._path, self._planned)
            done, self._done = self._done, None  # until all commands are played
            if done is None or commands[: len(done)] != done:
                done, self._answer = (), self._game.reset()
            for command in commands[len(done) :]:
                self._answer, _, _ = self._game.step(command)
            self._done = commands
            return _seen(self._answer, is_first=not commands)


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
            raise GameError(f"{path} is damaged ({error!r}); get it again, or take it out of the folder") from error
    if Path(path).suffix == ".tw-pddl":
        infos = game._entity_infos
        for name, short in short_names(infos).items():
            infos[name].name = short
    return game


def short_names(ids: Iterable[str]) -> dict[str, str]:
    """Names of things by their ids, as ALFWorld gives them: what it is, and its number among those of its kind.

    Example:
        >>> list(short_names(["agent1", "mug_bar__minus_00_dot_9", "mug_bar__plus_01_dot_2"]).values())
        ['agent1', 'mug 2', 'mug 1']
    """
    kinds = {}
    for name in sorted(ids):
        kind, has_place, _ = name.partition("_bar_")
        kinds[name] = kind + "basin" * ("basin" in name) if has_place else ""
    left = Counter(kinds.values())  # ALFWorld counts down
    names = {}
    for name, kind in kinds.items():
        names[name] = f"{kind} {left[kind]}" if kind else name
        left[kind] -= 1
    return names


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
    plan = answer.policy_commands or ()
    return Scene(
        text=_plain("\n".join([line for line in lines if line and not line.startswith(_SCORE)])),
        objective=_plain(" ".join(objective.split())),
        commands=tuple(map(_plain, answer.admissible_commands)),
        plan=tuple(map(_plain, plan)) if plan and plan[0] in answer.admissible_commands else (),
        won=bool(answer.won),
        lost=bool(answer.lost),
    )


def _plain(text: str) -> str:
    """The text in printable ASCII; what is not becomes a question mark."""
    return text.encode("ascii", "replace").decode()
