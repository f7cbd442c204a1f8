"""GEM (``pip install gem-llm``) both ways: its games here, and these environments with its vectors and wrappers.

A game of GEM's is played as any environment here; ``gem.make_vec`` makes ours once they are registered:

    turns = AgentTurns(GemText("game:GuessTheNumber-v0-easy"), max_actions_per_turn=1)
    gem.register("ragen:FrozenLake", GemEnvironment, env="ragen/FrozenLake-v0")
"""

import copy
import functools
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from ragen_envs.bridges.foreign import ForeignText, Reaction, Success, checked_text, solved
from ragen_envs.bridges.making import Maker, make_turns
from ragen_envs.oracles import random_action

_GLOBAL_RANDOMNESS = threading.RLock()


class GemText(ForeignText):
    r"""A game of GEM, or any environment with its interface that shows and reads text.

    ## Description
    The first observation explains the game. Each ends with GEM's suffix, which shows the board. What a reply means is
    GEM's to say, also that it is wrong, so that any text that is not blank is a valid action. Most games want it in
    braces: ``<answer>\boxed{7}</answer>``.

    ## Starting State
    ``reset(seed=s)`` starts as GEM does with seed `s`, and goes on as GEM would. GEM draws from the global generators
    of Python and NumPy; here each game has a state of its own, which they are given for the time of a call. Games in
    several threads take turns for that. With ``options={"outcome_seed": k}`` the state is another one after the start.

    ## Rewards
    GEM's.

    ## Episode End
    GEM's `terminated` and `truncated`. In the last turn of a game both may be true.

    ## Information
    `success`: what GEM's info says, else that the episode ended with 1 or more, GEM's reward of success. `env_info`:
    GEM's own.

    ## Arguments
    See `__init__`.
    """

    def __init__(
        self,
        env: str | Callable[[], Any],
        *,
        env_kwargs: Mapping[str, Any] | None = None,
        instruction: str = "Play the game that the first state explains.",
        success: Success = solved,
        max_observation_length: int = 8000,
        render_mode: str | None = None,
    ) -> None:
        """Makes the game.

        Args:
            env: Its id in GEM, or a function that makes it, with its wrappers.
            env_kwargs: Keyword arguments for the id.
            instruction: The first line that a model sees.
            success: Says whether the task is solved, from reward, end and info of a step.
            max_observation_length: Characters of an observation that are shown, at least 40.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ImportError: Without GEM, if `env` is an id.
            ValueError: If GEM has no such id, or an argument does not fit.
        """
        super().__init__(
            instruction=instruction,
            success=success,
            max_observation_length=max_observation_length,
            render_mode=render_mode,
        )
        if not callable(env):
            env = functools.partial(_registered, env, dict(env_kwargs or {}))
        elif env_kwargs:
            raise ValueError(f"env_kwargs is {dict(env_kwargs)}, but env is a function; set them inside the function")
        self._streams: tuple[Any, Any] | None = None
        with self._own_randomness():
            self._game = env()

    def _begin(self, seed: int, outcome_seed: int | None) -> Reaction:
        with self._own_randomness():
            seen, info = self._game.reset(seed=seed)
            if outcome_seed is not None:
                random.seed(outcome_seed)
                np.random.seed(outcome_seed % 2**32)
        return Reaction(self._whole(seen, info), info=info, task=seen)

    def _answer(self, action: str) -> Reaction:
        with self._own_randomness():
            seen, reward, terminated, truncated, info = self._game.step(action)
        return Reaction(self._whole(seen, info), float(reward), bool(terminated), bool(truncated), info)

    def _whole(self, seen: object, info: Mapping[str, Any]) -> str:
        """The observation with what GEM's `ObservationWrapper` puts around it, which is where boards are."""
        text, suffix = checked_text(seen, f"GEM's {type(self._game).__name__}"), info.get("suffix", "")
        if not suffix or text.endswith(suffix):  # the game has none, or that wrapper was there first
            return text
        return "\n".join((text.rstrip("\n"), suffix))

    @contextmanager
    def _own_randomness(self) -> Iterator[None]:
        """Lends the global generators this game's state, and gives the program its own back."""
        with _GLOBAL_RANDOMNESS:
            outside = random.getstate(), np.random.get_state()
            if self._streams is not None:
                random.setstate(self._streams[0])
                np.random.set_state(self._streams[1])
            try:
                yield
            finally:
                self._streams = random.getstate(), np.random.get_state()
                random.setstate(outside[0])
                np.random.set_state(outside[1])


def _registered(name: str, arguments: dict[str, Any]) -> Any:
    """A game from GEM's registry."""
    try:
        import gem  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError("GEM is not installed; pip install 'ragen-trl[gem]'") from error
    return gem.make(name, **arguments)


class GemEnvironment:
    """A text environment in turns with the methods of GEM's `Env`: `reset`, `step`, `sample_random_action`, `spawn`.

    GEM needs these methods and no base class, so that nothing of it is imported here. Messages, replies, reward,
    terminated, truncated and info are those of `AgentTurns`.

    Args:
        env: A Gymnasium id, or a function that makes a text environment, or an `AgentTurns` with its limits.
        seed: Seed of the first reset that is called without one; `gem.make_vec` passes a different one to each.
    """

    def __init__(self, env: str | Maker, seed: int | None = None) -> None:
        """Makes the environment; the arguments are described in the class docstring."""
        self._env, self._seed = env, seed
        self._turns = make_turns(env)
        self._random = np.random.default_rng(seed)  # only for random actions

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Starts an episode; returns the first user message and the info of `AgentTurns`."""
        seed, self._seed = self._seed if seed is None else seed, None
        return self._turns.reset(seed=seed)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Takes one reply, any string, as `AgentTurns.step` does."""
        return self._turns.step(action)

    def sample_random_action(self) -> str:
        """A well-formed reply with one random action."""
        return self._turns.format_reply([random_action(self._turns, self._random)])

    def spawn(self, same_state: bool = False, seed: int | None = None) -> "GemEnvironment":
        """A copy in the same state, or a new environment that is made the same way."""
        return copy.deepcopy(self) if same_state else GemEnvironment(self._env, seed)

    @property
    def unwrapped(self) -> "GemEnvironment":
        """This object: for GEM, it is not a wrapper."""
        return self
