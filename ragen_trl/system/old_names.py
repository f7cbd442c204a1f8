"""Import paths and names of version 0.1, which still work and warn once.

A path such as ``ragen_trl.tiny_model`` becomes a stand-in for the module's new path. What README, the documentation and
``__all__`` of version 0.1 showed is kept, and what a checkpoint's ``training_args.bin`` names.
"""

import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

MOVED = {
    "accumulation": "batching.loss_normalization",
    "astar_po_config": "config.astar_po",
    "astar_po_trainer": "astar_po.trainer",
    "batch": "batching.batch",
    "collapse_signs": "monitoring.alerts",
    "experience": "batching.rollout_batch",
    "filtering": "algorithms.filtering",
    "gae": "algorithms.gae",
    "intervals": "evaluation.intervals",
    "losses": "algorithms.losses",
    "memory_estimate": "cli.memory_estimate",
    "observers": "trainers.observers",
    "pass_at_k": "evaluation.pass_at_k",
    "starpo_trainer": "trainers.starpo",
    "tiny_model": "policies.tiny_model",
    "trajectory_trainer": "trainers.trajectory",
}
"""Modules of ``ragen_trl``: old path → new path."""

RENAMED = {
    "Experience": "RolloutBatch",
    "Fired": "Alert",
    "Observation": "RolloutEvent",
    "Outline": "TrajectorySummary",
    "add_window_totals": "add_step_totals",
    "find_signs": "find_alerts",
}
"""Classes and functions: old name → new name."""


class _StandIn(ModuleType):
    """A module at its old path; every name is read from the new path."""

    def __init__(self, name: str, target: str) -> None:
        super().__init__(name, f"The former path of ``{target}``.")
        self.__dict__["_target"] = target

    def __getattr__(self, name: str) -> Any:
        target = import_module(self._target)
        if name == "__all__":
            return [each for each in vars(target) if not each.startswith("_")]
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(target, new_name(name) or name)


class _OldPaths(MetaPathFinder, Loader):
    """Finds the modules of `MOVED`; Python asks all other finders first."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.rpartition(".")
        return ModuleSpec(fullname, self) if package == "ragen_trl" and name in MOVED else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        target = f"ragen_trl.{MOVED[spec.name.rpartition('.')[2]]}"
        warnings.warn(f"{spec.name} is now {target}", DeprecationWarning, stacklevel=2)
        return _StandIn(spec.name, target)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to run."""


def install() -> None:
    """Make the old paths importable; a second call changes nothing."""
    if not any(isinstance(finder, _OldPaths) for finder in sys.meta_path):
        sys.meta_path.append(_OldPaths())


def new_name(name: str) -> str | None:
    """The new name for an old one, with a warning the first time; ``None`` if ``name`` is no old name."""
    if name in RENAMED:
        _warn_once(name, RENAMED[name])
    return RENAMED.get(name)


def former_attribute(old: str, new: str) -> Any:
    """A property under an old name, for class bodies."""

    def read(self: Any) -> Any:
        _warn_once(old, new, level=3)
        return getattr(self, new)

    return property(read, doc=f"The former name of ``{new}``.")


def former_arguments(**former: str) -> Callable[[F], F]:
    """A decorator: the function also takes arguments by their former names.

    Args:
        former: Old name, new name.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def called(*args: Any, **given: Any) -> Any:
            for old in former.keys() & given.keys():
                _warn_once(old, former[old], level=3)
                given[former[old]] = given.pop(old)
            return function(*args, **given)

        return called  # type: ignore[return-value]

    return decorate


def alias_methods(kind: type, former: Mapping[str, str]) -> None:
    """Makes a class answer to its methods' former names, and lets a subclass still override them by these.

    Called for each class as it is defined. A class that defines a method under its former name gets it under the
    present one as well, with a warning; one that defines it under the present name gets the former one, too, which
    ``super()`` in old subclasses finds.

    Args:
        kind: The class.
        former: Old name, new name.
    """
    for old, new in former.items():
        own = vars(kind)
        if old in own and new not in own:
            _warn_once(old, new, level=5)  # past ``__init_subclass__`` and `abc`
            setattr(kind, new, own[old])
        elif new in own and old not in own:
            setattr(kind, old, own[new])


class FormerKeys(dict[str, Any]):
    """A mapping that can be read by its old keys as well.

    Args:
        values: What it holds.
        former: Old key → new key.
    """

    def __init__(self, values: Mapping[str, Any], former: Mapping[str, str]) -> None:
        super().__init__(values)
        self._former = former

    def __missing__(self, key: str) -> Any:
        if key not in self._former:
            raise KeyError(key)
        _warn_once(key, self._former[key], level=3)
        return self[self._former[key]]

    def __contains__(self, key: object) -> bool:
        return super().__contains__(self._former.get(str(key), key))

    def get(self, key: str, default: Any = None) -> Any:
        """As of any mapping, for former keys, too."""
        return self[key] if key in self else default


_warned: set[str] = set()


def _warn_once(old: str, new: str, level: int = 4) -> None:
    """Warns at the line of the user, ``level`` frames up."""
    if old not in _warned:
        _warned.add(old)
        warnings.warn(f"{old} is now {new}", DeprecationWarning, stacklevel=level)
