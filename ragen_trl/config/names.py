"""Names on a command line and in a file of options, looked at before torch is imported: a typo costs a second.

The full parser stays the judge. Here a name is wrong only if nothing knows it; TRL's options are read from its source.
"""

import ast
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import find_spec
from inspect import get_annotations
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import gymnasium

from ragen_envs import make_named
from ragen_trl.config import options as declared
from ragen_trl.config.options import option_names
from ragen_trl.config.recipes import SECTIONS
from ragen_trl.errors import OptionError

OURS = tuple(kind for kind in vars(declared).values() if isinstance(kind, type) and is_dataclass(kind))
"""Every class of options that this package declares."""
_OF_TRL = ("trl/trainer/grpo_config.py", "trl/trainer/base_config.py", "transformers/training_args.py")


def check_names(what: str, names: Iterable[Any], known: Collection[str]) -> None:
    """Raise `OptionError` for a name that is not among the known ones, with the nearest of these."""
    for name in names:
        if name not in known:
            near = get_close_matches(str(name), known, 1)
            raise OptionError(f"{what} {name}; " + (f"did you mean {near[0]}?" if near else "--help lists ours"))


def typed(words: Sequence[str]) -> dict[str, str | None]:
    """Names of the options among the words of a command line, with underscores, and the first word of each value."""
    found = {}
    for word, after in pairwise([*words, "--"]):
        if word.startswith("--"):
            name, is_joined, value = word[2:].partition("=")
            found[name.replace("-", "_")] = value if is_joined else None if after.startswith("--") else after
    return found


def check_early(words: Sequence[str], given: Mapping[str, Any]) -> None:
    """Raise `OptionError` or `EnvError` for an option that no command has, or a value that an option of ours never has.

    Args:
        words: What follows the command, without ``--config``.
        given: The content of the file that ``--config`` names.
    """
    said = typed(words)
    sections = [part or {} for name in SECTIONS for part in (given.get(name) or {}).values()]
    if of_trl := names_of_trl():
        known = {*of_trl, *(name for kind in OURS for name in option_names(kind))}
        known |= {f"no_{name}" for name in known} | {"help", *SECTIONS}
        check_names("there is no option", (f"--{name}" for name in said), {f"--{name}" for name in known})
        check_names("the config file has", (name for part in (given, *sections) for name in part), known)
    hints: dict[str, Any] = {name: hint for kind in OURS for name, hint in get_annotations(kind).items()}
    for name, value in {**given, **said}.items():
        if get_origin(hints.get(name)) is Literal and value is not None:
            check_names(f"{name} cannot be", [value], get_args(hints[name]))
    if isinstance(env := said.get("env", given.get("env")), str):
        module, _, name = env.rpartition(":")
        try:
            if module:
                import_module(module)
            gymnasium.spec(name)
        except (ImportError, gymnasium.error.Error):
            make_named(env, {}).close()  # it says which there are


def names_of_trl() -> set[str]:
    """Names of the options of TRL's ``GRPOConfig``, from its source files; none if a class of it is not in these."""
    classes: dict[str, ast.ClassDef] = {}
    for source in _OF_TRL:
        package, _, file = source.partition("/")
        found = find_spec(package)
        for folder in (found.submodule_search_locations if found else None) or ():
            with suppress(OSError, SyntaxError):
                tree = ast.parse((Path(folder) / file).read_text(encoding="utf-8"))
                classes |= {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    names, wanted = set[str](), ["GRPOConfig"]
    while wanted:
        if (one := classes.get(wanted.pop())) is None:
            return set()
        names |= {ast.unparse(part.target) for part in one.body if isinstance(part, ast.AnnAssign)}
        wanted += [ast.unparse(base) for base in one.bases]
    return names
