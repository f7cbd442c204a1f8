"""Many environments of one kind in one process, without the time that wrappers take.

`gymnasium.make_vec(id, n, "sync")` puts three wrappers around every environment and merges info dicts key by key. Here
one loop steps the bare environments, counts the steps of `TimeLimit` and gathers each info key at once. The results are
the same, seed for seed.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat

import numpy as np
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from numpy.typing import NDArray

from ragen_envs.arguments import check_integer, check_limit
from ragen_envs.bandit import Bandit
from ragen_envs.frozen_lake import FrozenLake
from ragen_envs.sokoban import Sokoban
from ragen_envs.text_env import TextEnv

Texts = tuple[str, ...]


class TextVectorEnv(SyncVectorEnv[Texts, Texts]):
    """Steps text environments of one kind side by side.

    Observations and actions are tuples of `num_envs` strings, rewards float64 of shape (num_envs,), ``terminated``
    and ``truncated`` bool of the same shape. Infos are Gymnasium's: for each key an array of shape (num_envs,) and,
    under ``_key``, the mask of the environments that reported it; with ``AutoresetMode.SAME_STEP`` also `final_obs`
    and `final_info` of the episodes that ended.

    It differs from a `SyncVectorEnv` in three things. `step` checks all actions before it carries out the first.
    With ``AutoresetMode.DISABLED``, stepping an ended episode raises a `ResetNeeded` that names it. `reset` does not
    change the options that it is given.

    For your own environment use ``functools.partial(TextVectorEnv, MyEnv)`` as vector entry point, as below.
    """

    def __init__(
        self,
        env_type: Callable[..., TextEnv],
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        max_episode_steps: int | None = None,
        **arguments: Any,
    ) -> None:
        """Builds the environments.

        Args:
            env_type: Class of the environments.
            num_envs: How many, at least 1.
            autoreset_mode: When a new episode follows one that ended: at the next step, at once, or after `reset`.
            max_episode_steps: Steps, including invalid actions, after which an episode is truncated; None or, as in
                `gymnasium.make`, -1 for no limit except the environment's own.
            **arguments: Arguments of `env_type`.

        Raises:
            ValueError: If a number is out of its range, or the autoreset mode or an argument's value is unknown.
            TypeError: If `env_type` does not take an argument.
        """
        check_integer("num_envs", num_envs, 1, "leaves nothing to step")
        if max_episode_steps != -1:
            check_limit("max_episode_steps", max_episode_steps)
        make = functools.partial(env_type, **arguments)
        super().__init__([make] * num_envs, autoreset_mode=autoreset_mode)
        self._max_steps = float("inf") if max_episode_steps in (None, -1) else max_episode_steps
        self._texts = [""] * num_envs
        self._steps_taken = [0] * num_envs
        self._has_ended = [False] * num_envs

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Texts, dict[str, Any]]:
        """Starts an episode in every environment, or in those of a mask.

        Args:
            seed: Environment i gets ``seed + i``; or a sequence with one seed, or None, for each environment.
            options: Passed on to each `TextEnv.reset`, except ``"reset_mask"``: a bool array of shape (num_envs,)
                that says which environments are reset; the others continue and keep their observation.

        Returns:
            The observations of all environments and the infos of those that were reset.

        Raises:
            ValueError: If the seeds or the mask do not fit, or if an environment refuses an option.
        """
        seeds = self._seeds(seed)
        options = dict(options or {})
        rows = self._masked_rows(options.pop("reset_mask", None))
        infos = [self._restart(row, seeds[row], options) for row in rows]
        return tuple(self._texts), self._gather(rows, infos)

    def step(
        self, actions: Sequence[str]
    ) -> tuple[Texts, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], dict[str, Any]]:
        """Carries out one action in every environment.

        Args:
            actions: One string for each environment. With ``AutoresetMode.NEXT_STEP``, an environment whose episode
                has ended is reset instead, and its action is not used.

        Returns:
            Observations, rewards, terminated, truncated and infos, as in the class docstring.

        Raises:
            ValueError: If there is not one action for each environment.
            TypeError: If an action is not a string.
            gymnasium.error.ResetNeeded: Before `reset`; with ``AutoresetMode.DISABLED`` also after an end.
        """
        self._check(actions)
        texts, steps_taken, has_ended, max_steps = self._texts, self._steps_taken, self._has_ended, self._max_steps
        rewards: list[SupportsFloat] = [0.0] * self.num_envs
        terminated = [False] * self.num_envs
        truncated = [False] * self.num_envs
        infos: list[dict[str, Any]] = []
        for row, (env, action) in enumerate(zip(self.envs, actions, strict=True)):
            if has_ended[row]:
                infos.append(self._restart(row))
                continue
            texts[row], rewards[row], terminated[row], truncated[row], info = env.step(action)
            infos.append(info)
            steps_taken[row] += 1
            if steps_taken[row] >= max_steps:
                truncated[row] = True
        self._has_ended = [task or limit for task, limit in zip(terminated, truncated, strict=True)]
        final = self._restart_ended(infos) if self.autoreset_mode == AutoresetMode.SAME_STEP else {}
        gathered = self._gather(range(self.num_envs), infos)
        flags = np.array([terminated, truncated], dtype=np.bool_)
        return tuple(self._texts), np.array(rewards, dtype=np.float64), flags[0], flags[1], final | gathered

    def _check(self, actions: Sequence[str]) -> None:
        if isinstance(actions, str) or len(actions) != self.num_envs:
            raise ValueError(f"actions {actions!r:.200} must be {self.num_envs} strings, one for each environment")
        for row, action in enumerate(actions):
            if not isinstance(action, str):
                kind = type(action).__name__
                raise TypeError(f"action {action!r} of environment {row} is of type {kind}; step takes strings")
        if self.autoreset_mode == AutoresetMode.DISABLED and any(self._has_ended):
            ended = [row for row, has_ended in enumerate(self._has_ended) if has_ended]
            raise ResetNeeded(f"the episodes of environments {ended} have ended; reset(options={{'reset_mask': mask}})")

    def _seeds(self, seed: int | Sequence[int | None] | None) -> Sequence[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if isinstance(seed, int | np.integer):
            return [int(seed) + row for row in range(self.num_envs)]
        if len(seed) != self.num_envs:
            raise ValueError(f"{len(seed)} seeds for {self.num_envs} environments; pass one for each, or one number")
        return seed

    def _masked_rows(self, mask: NDArray[np.bool_] | None) -> Sequence[int]:
        if mask is None:
            return range(self.num_envs)
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise ValueError(f"reset_mask={mask!r} must be a bool array of shape ({self.num_envs},)")
        if not mask.any():
            raise ValueError(f"reset_mask={mask!r} resets nothing; set at least one element")
        return np.flatnonzero(mask).tolist()

    def _restart(self, row: int, seed: int | None = None, options: dict[str, Any] | None = None) -> dict[str, Any]:
        """Starts an episode in one environment and returns its info."""
        self._texts[row], info = self.envs[row].reset(seed=seed, options=options)
        self._steps_taken[row] = 0
        self._has_ended[row] = False
        return info

    def _restart_ended(self, infos: list[dict[str, Any]]) -> dict[str, Any]:
        """Starts new episodes where one has ended, puts their infos into `infos`, returns the final ones."""
        rows = [row for row, has_ended in enumerate(self._has_ended) if has_ended]
        if not rows:
            return {}
        final = self._gather(rows, [{"final_obs": self._texts[row]} for row in rows])
        final["final_info"] = self._gather(rows, [infos[row] for row in rows])
        final["_final_info"] = final["_final_obs"].copy()
        for row in rows:
            infos[row] = self._restart(row)
        return final

    def _gather(self, rows: Sequence[int], infos: list[dict[str, Any]]) -> dict[str, Any]:
        """Merges the infos of some environments, with the result that `VectorEnv._add_info` gives one by one.

        Infos as `TextEnv` promises them, with the same keys everywhere and immutable values, are merged at once.
        Gymnasium's types are kept: numbers by the type of the first one, everything else as objects.
        """
        first = infos[0]
        is_flat = not any(isinstance(value, dict | np.ndarray) for value in first.values())
        if not is_flat or any(info.keys() != first.keys() for info in infos):
            merged: dict[str, Any] = {}
            for row, info in zip(rows, infos, strict=True):
                merged = self._add_info(merged, info, row)
            return merged
        where = slice(None) if len(rows) == self.num_envs else rows
        mask = np.zeros(self.num_envs, dtype=np.bool_)
        mask[where] = True
        gathered: dict[str, Any] = {}
        for key, value in first.items():
            kind = type(value)
            dtype = kind if kind in (bool, int, float) or issubclass(kind, np.number) else object
            column = np.zeros(self.num_envs, dtype) if dtype is not object else np.full(self.num_envs, None, dtype)
            column[where] = np.fromiter((info[key] for info in infos), dtype, len(infos))
            gathered[key], gathered[f"_{key}"] = column, mask.copy()
        return gathered


# Entry points of the registered ids. They are registered by name, because `EnvSpec.to_json` fails for a callable.
bandit_vector = functools.partial(TextVectorEnv, Bandit)
frozen_lake_vector = functools.partial(TextVectorEnv, FrozenLake)
sokoban_vector = functools.partial(TextVectorEnv, Sokoban)
