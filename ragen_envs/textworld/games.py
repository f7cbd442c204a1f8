"""Games of TextWorld: made and kept in a cache, or found in a folder; and what one shows after some commands.

A game takes some seconds to make, because Inform 7 compiles it. It is made when it is first played, and then lies in
``ragen-textworld/textworld-VERSION/SIZE/NUMBER/`` of the user's cache for good: these three decide every byte of it.
"""

import functools
import os
import re
import tempfile
import threading
import warnings
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ragen_envs.errors import EnvError

EVALUATION = 1_000_000
"""Number of the first generated game of the split "eval"; those of "train" begin at 0. Each split has as many."""

Commands = tuple[str, ...]
_ATTEMPTS = 5
_NEXT_ATTEMPT = 10_000_000  # added to the seed of a game that has no quest
_END = re.compile(r"\*\*\* (The End|You lost!) \*\*\*")
_SCORE = "Your score has just gone up by"  # info and rewards say it
_STATUS = re.compile(r"^>.*\Z", re.MULTILINE | re.DOTALL)

_STARTING = threading.RLock()  # held while a game is made or started: threads share parsers and shown warnings


class GameError(EnvError, ValueError):
    """A game cannot be made or read."""


def check_installed() -> str:
    """The version of the package `textworld`.

    Raises:
        ModuleNotFoundError: If it is not installed.
    """
    try:
        return version("textworld")
    except PackageNotFoundError as error:
        raise ModuleNotFoundError("the package textworld is missing; pip install 'ragen-trl[textworld]'") from error


def game_file(size: str, number: int) -> Path:
    """The file of a generated game, which is made unless it is there.

    Processes that want the same game at once wait for the one that makes it. What is found is whole: a game is made in
    a folder of its own, which is renamed when it is done.

    Args:
        size: Rooms, objects and quest length, such as "w2-o3-q4".
        number: The game's number, which is the seed of its map, objects, quest and texts.

    Raises:
        GameError: If TextWorld finds no quest of this length.
        OSError: If the cache cannot be written; the variable XDG_CACHE_HOME says where it is.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "ragen-textworld" / f"textworld-{check_installed()}" / size
    found = home / str(number) / "game.z8"
    if found.exists():
        return found
    from filelock import FileLock

    home.mkdir(parents=True, exist_ok=True)
    with FileLock(home / f"{number}.lock"):
        if not found.exists():
            with tempfile.TemporaryDirectory(prefix=".making-", dir=home) as scratch:
                made = Path(scratch) / "made"
                _make(size, number, made)
                made.rename(found.parent)
    return found


def _make(size: str, number: int, folder: Path) -> None:
    """Writes ``game.z8`` and ``game.json`` into a new folder."""
    with _STARTING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the package itself imports
        import textworld
        from textworld.generator import QuestGenerationError

    rooms, objects, quest_length = map(int, re.findall("[0-9]+", size))
    for attempt in range(_ATTEMPTS):
        options = textworld.GameOptions()
        options.nb_rooms, options.nb_objects, options.quest_length = rooms, objects, quest_length
        options.seeds = number + attempt * _NEXT_ATTEMPT
        options.path = str(folder / "game.z8")
        try:
            with _STARTING:
                textworld.make(options)
        except QuestGenerationError:
            continue
        (folder / "game.ni").unlink(missing_ok=True)  # the source in Inform 7
        return
    raise GameError(f"TextWorld finds no quest for game {number} of size={size!r}; ask for a shorter one or more rooms")


@functools.lru_cache(maxsize=16)
def games_in(folder: Path) -> tuple[Path, ...]:
    """The games of a folder and the folders in it, sorted by path. They are looked for once in a process.

    Raises:
        GameError: If there is no such folder or no game in it, or a ``.z8`` has no ``.json`` of its own beside it.
    """
    found = sorted(folder.rglob("*.z8"))
    if not found:
        raise GameError(f"folder='{folder}' has no game that ends in .z8; name a folder with games")
    for path in found:
        if not path.with_suffix(".json").is_file():
            raise GameError(f"{path} has no {path.stem}.json beside it; TextWorld writes both, and both are needed")
    return tuple(found)


@dataclass(frozen=True)
class Scene:
    """What a game shows after some commands.

    It depends only on the game's file and the commands, so an environment can be copied, pickled and stepped in any
    process. (Copying an interpreter takes ten times as long as playing the commands again.)

    Attributes:
        text: The answer to the last command, or what there is to see at the beginning; without blank lines.
        objective: The task in words.
        commands: The admissible commands, sorted.
        plan: Commands that lead to the end from here; () if none do.
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
def scene(path: str, commands: Commands) -> Scene:
    """The scene after some admissible commands from the beginning of the game in a file.

    Raises:
        GameError: If the file is no game.
    """
    return _player(path).scene_after(commands)


class _Player:
    """An interpreter of one game, which goes on from its last command, or begins again where that is on another way."""

    def __init__(self, path: str) -> None:
        self._done: Commands | None = None
        self._lock = threading.Lock()
        # The interpreter warns that it knows no scores and moves of these games; TextWorld does.
        with _STARTING, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import textworld

            wanted = ("admissible_commands", "policy_commands", "objective", "won", "lost")
            try:
                self._game: Any = textworld.start(path, textworld.EnvInfos(**dict.fromkeys(wanted, True)))
            except (ValueError, KeyError) as error:
                raise GameError(f"{path} is damaged ({error!r}); get it again, or take it out of the folder") from error

    def scene_after(self, commands: Commands) -> Scene:
        with self._lock:
            done, self._done = self._done, None  # until all commands are played
            if done is None or commands[: len(done)] != done:
                done, self._answer = (), self._game.reset()
            for command in commands[len(done) :]:
                self._answer, _, _ = self._game.step(command)
            self._done = commands
            return _seen(self._answer, is_first=not commands)


_player = functools.lru_cache(maxsize=32)(_Player)  # each takes 1.8 MB


if os.name == "posix":  # a child must inherit neither a held lock nor an interpreter in the middle of a command
    os.register_at_fork(before=_STARTING.acquire, after_in_parent=_STARTING.release, after_in_child=_STARTING.release)
    os.register_at_fork(after_in_child=_player.cache_clear)


def _seen(answer: Any, is_first: bool) -> Scene:
    text = str(answer.feedback)
    objective = str(answer.objective or "").strip()
    if is_first and objective:
        text = text.partition(objective)[2]  # it follows a large title
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
