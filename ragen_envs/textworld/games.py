"""Game files: made by TextWorld and kept in a cache, or found in a folder.

A game takes some seconds to make, because Inform 7 compiles it. It is made when it is first played, and then lies in
``CACHE/textworld-VERSION/SIZE/NUMBER/`` for good: version, size and number decide every byte of it.
"""

import functools
import json
import os
import re
import tempfile
import threading
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ragen_envs.errors import EnvError

EVALUATION = 1_000_000
"""Number of the first generated game of the split "eval"; those of "train" begin at 0. Each split has as many."""

_SIZE = re.compile(r"w([1-9]\d?)-o([1-9]\d?)-q([1-9]\d?)")
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
_KINDS = (".z8", ".tw-pddl")
_ATTEMPTS = 5
_NEXT_ATTEMPT = 10_000_000  # added to the seed of a game that has no quest

PARSING = threading.RLock()
"""Held while a game is made or started, or one of ALFWorld's answers: threads share parsers and shown warnings."""

if os.name == "posix":  # otherwise a child could inherit it from a thread that the child does not have
    os.register_at_fork(before=PARSING.acquire, after_in_parent=PARSING.release, after_in_child=PARSING.release)


class MissingTextWorldError(EnvError, ModuleNotFoundError):
    """A package that plays text adventures is not installed."""


class GameError(EnvError, ValueError):
    """A game cannot be made or read."""


def check_installed() -> str:
    """The version of the package `textworld`.

    Raises:
        MissingTextWorldError: If it is not installed.
    """
    try:
        return version("textworld")
    except PackageNotFoundError as error:
        raise MissingTextWorldError(
            "ragen/TextWorld-v0 needs the package textworld; pip install 'ragen-trl[textworld]'"
        ) from error


def parse_size(size: object) -> tuple[int, int, int]:
    """Rooms, objects and quest length of a size.

    Raises:
        ValueError: If it is not a size, or a number is not from 1 to 99.

    Example:
        >>> parse_size("w2-o3-q4")
        (2, 3, 4)
    """
    found = _SIZE.fullmatch(size) if isinstance(size, str) else None
    if found is None:
        raise ValueError(
            f"size={size!r} is no size; write rooms, objects and quest length, from 1 to 99, as in 'w2-o3-q4'"
        )
    return int(found[1]), int(found[2]), int(found[3])


def user_cache() -> Path:
    """The folder of games without a ``cache``: ``ragen-textworld`` in the user's cache."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "ragen-textworld"


def game_file(size: str, number: int, cache: Path) -> Path:
    """The file of a generated game, which is made unless it is there.

    Processes that want the same game at once wait for the one that makes it. What is found is whole: a game is made in
    a folder of its own, which is renamed when it is done.

    Args:
        size: As `parse_size` reads it.
        number: The game's number, which is the seed of its map, objects, quest and texts.
        cache: The folder of all games.

    Raises:
        GameError: If TextWorld finds no quest of this length, or the cache cannot be written.
        MissingTextWorldError: If `textworld` is not installed.
    """
    home = cache / f"textworld-{check_installed()}" / size
    found = home / str(number) / "game.z8"
    if found.exists():
        return found
    from filelock import FileLock

    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GameError(f"cache='{cache}' cannot be written ({error.strerror}); name another folder") from error
    with FileLock(home / f"{number}.lock"):
        if not found.exists():
            with tempfile.TemporaryDirectory(prefix=".making-", dir=home) as scratch:
                made = Path(scratch) / "made"
                _make(size, number, made)
                made.rename(found.parent)
    return found


def _make(size: str, number: int, folder: Path) -> None:
    """Writes ``game.z8`` and ``game.json`` into a new folder."""
    with PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what the package itself imports
        import textworld
        from textworld.generator import QuestGenerationError

    rooms, objects, quest_length = parse_size(size)
    for attempt in range(_ATTEMPTS):
        options = textworld.GameOptions()
        options.nb_rooms, options.nb_objects, options.quest_length = rooms, objects, quest_length
        options.seeds = number + attempt * _NEXT_ATTEMPT
        options.path = str(folder / "game.z8")
        try:
            with PARSING:
                textworld.make(options)
            break
        except QuestGenerationError as error:
            if attempt == _ATTEMPTS - 1:
                raise GameError(
                    f"size={size!r}: TextWorld finds no quest of {quest_length} commands in {rooms} rooms with "
                    f"{objects} objects (game {number}); ask for a shorter quest, or for more rooms"
                ) from error
    (folder / "game.ni").unlink(missing_ok=True)  # the source in Inform 7


@functools.lru_cache(maxsize=16)
def games_in(folder: Path) -> tuple[Path, ...]:
    """The games of a folder and the folders in it, sorted by path. They are looked for once in a process.

    Those of ALFWorld are its ``game.tw-pddl`` without the ones that it leaves out as well: those marked as not
    solvable, and those with movable receptacles or sliced things in their names.

    Raises:
        GameError: If there is no such folder or no game in it, or a ``.z8`` has no ``.json`` of its own beside it.
    """
    if not folder.is_dir():
        raise GameError(f"folder='{folder}' is no folder; name one with games")
    found = sorted(path for path in folder.rglob("*") if path.suffix in _KINDS and _is_played(path))
    if not found:
        raise GameError(f"folder='{folder}' has no game that ends in {' or '.join(_KINDS)}; name one that has")
    for path in found:
        if path.suffix == ".z8" and not path.with_suffix(".json").is_file():
            raise GameError(f"{path} has no {path.stem}.json beside it; TextWorld writes both, and both are needed")
    return tuple(found)


def _is_played(path: Path) -> bool:
    if path.suffix != ".tw-pddl":
        return True
    left_out = "movable" in str(path.parent) or "Sliced" in str(path.parent)
    return not left_out and re.search(rb'"solvable": *false', path.read_bytes()) is None


def task_type(game: Path) -> str:
    """The type of a game's task, from the ``traj_data.json`` beside it or the name of a folder; "" for other games.

    Raises:
        GameError: If that file is no JSON object.
    """
    about = game.with_name("traj_data.json")
    if about.is_file():
        try:
            return str(json.loads(about.read_text(encoding="utf-8")).get("task_type", ""))
        except (ValueError, AttributeError) as error:
            raise GameError(f"{about} is damaged ({error!r}); get it again, or take it out of the folder") from error
    parts = [part.split("-")[0] for part in game.parts]
    return next((part for part in parts if part in TASK_TYPES), "")
