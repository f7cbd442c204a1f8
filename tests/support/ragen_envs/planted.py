"""Small environments that are sound, and others with one planted defect each, for the tests of `ragen_envs.check`."""

import itertools
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

import gymnasium

from ragen_envs import TextEnv, best_action

ENDS = (0, 8)  # of a line of nine cells
WORDS = {"left": "Left", "right": "Right"}


class Walk(TextEnv):
    """Reach the flag at one end of a line of nine cells, within ten steps."""

    actions: Any = ("Left", "Right")
    instruction: Any = "Walk to F."

    def _start(self, options: Mapping[str, Any]) -> str:
        self.place = int(self.np_random.integers(3, 6))
        self.goal = ENDS[int(self.np_random.integers(2))]
        self.taken, self._truncated = 0, False
        return self._seen()

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.taken += 1
        self.place += 1 if action == "Right" else -1
        solved, over = self.place == self.goal, self.place in ENDS
        self._truncated = self.taken == 10 and not over
        return self._seen(), float(solved), over, {"success": solved, "action_is_effective": True}

    def _seen(self) -> str:
        return "".join("F" if cell == self.goal else "P" if cell == self.place else "_" for cell in range(9))

    def best_action(self, actions_left: int) -> str:
        return "Right" if self.goal > self.place else "Left"


def planted(name: str, **methods: Any) -> type[Walk]:
    """A walk with other methods."""
    return type(name, (Walk,), methods)


def act(change: Callable[..., tuple[Any, ...]]) -> Any:
    """An `_act` that changes what `Walk` returns: observation, reward, end and info."""
    return lambda env, action: change(*Walk._act(env, action))


def started(goal: Callable[[Mapping[str, Any]], int]) -> Any:
    """A `_start` with another goal."""

    def start(env: Walk, options: Mapping[str, Any]) -> str:
        Walk._start(env, options)
        env.goal = goal(options)
        return env._seen()

    return start


GlobalRandom = planted("GlobalRandom", _start=started(lambda options: random.choice(ENDS)))
StartFromLuck = planted("StartFromLuck", _start=started(lambda options: ENDS[options.get("outcome_seed", 0) % 2]))
SharedLuck = planted(
    "SharedLuck", _act=lambda env, action: Walk._act(env, action if env.np_random.random() < 0.8 else "Left")
)
HashOrder = planted("HashOrder", _seen=lambda env: f"{Walk._seen(env)} {hash('a goal')}")
StrangeLetters = planted("StrangeLetters", _seen=lambda env: Walk._seen(env).replace("F", "⚑"))
NotANumber = planted("NotANumber", _act=act(lambda seen, reward, over, info: (seen, reward or math.nan, over, info)))
CountedSuccess = planted(
    "CountedSuccess", _act=act(lambda seen, reward, over, info: (seen, reward, over, {**info, "success": reward}))
)
PaidToFail = planted("PaidToFail", _act=act(lambda seen, reward, over, info: (seen, -reward, over, info)))
RaisesOnSurrogates = planted(
    "RaisesOnSurrogates", _parse_action=lambda env, text: WORDS.get(text.lower().encode().decode())
)
GarbageWins = planted("GarbageWins", _parse_action=lambda env, text: WORDS.get(text.lower(), Walk.best_action(env, 1)))
WrongOracle = planted("WrongOracle", best_action=lambda env, left: "Left" if env.goal > env.place else "Right")


class Leftover(Walk):
    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.goals = itertools.cycle((0, 8, 8))

    def _start(self, options: Mapping[str, Any]) -> str:
        super()._start(options)
        self.goal = next(self.goals)
        return self._seen()


class SharedState(Walk):
    where: dict[str, int] = {}

    def _start(self, options: Mapping[str, Any]) -> str:
        shown = super()._start(options)
        self.where["place"] = self.place
        return shown

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.place = self.where["place"]
        result = super()._act(action)
        self.where["place"] = self.place
        return result


class Bare(gymnasium.Env[str, str]):
    """A plain Gymnasium environment."""

    actions = ("Left", "Right")
    observation_space = action_space = gymnasium.spaces.Text(64, min_length=0, charset="ABCDEFLPRefghit_")
    info: Mapping[str, Any] = {}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.place = 8, int(self.np_random.integers(2))
        return "LR"[self.place], {"success": False}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        right = self.actions.index(action) == self.place if action in self.actions else False
        return "LR"[self.place], float(right), True, False, dict(self.info)


class LimitIsTheEnd(Walk):
    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.taken += 1
        self.place = self.place + (1 if action == "Right" else -1)
        solved = self.place == self.goal
        info = {"success": solved, "action_is_effective": True}
        return self._seen(), float(solved), solved or self.taken == 10, info


class GoalIsALimit(Walk):
    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        shown, reward, over, info = super()._act(action)
        self._truncated |= over
        return shown, reward, False, info


class PaysAfterTheEnd(Walk):
    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        over = self._terminated
        shown, reward, *rest = super().step(action)
        return (shown, 1.0 if over else reward, *rest)  # type: ignore[return-value]


class NoEnd(Walk):
    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        shown, reward, over, info = super()._act(action)
        self.place, self._truncated = min(max(self.place, 1), 7) if not reward else self.place, False
        self.taken = 0
        return self._seen(), 0.0, False, {**info, "success": False}


class AlwaysRight(Walk):
    _start = started(lambda options: 8)

    def best_action(self, actions_left: int) -> str:  # by a detour, so that it does not always do the same
        return "Left" if self.taken == 0 and self.place == 3 else "Right"


class Lock(Walk):
    """Opens by one of the keys, which is shown."""

    keys = (("Left", "Left", "Right", "Left"), ("Left", "Right", "Right", "Right"), ("Right", "Left", "Left", "Right"))

    def _start(self, options: Mapping[str, Any]) -> str:
        self.key, self.tried = self.keys[int(self.np_random.integers(len(self.keys)))], ()
        return ", ".join(self.key).replace("ft", "f_")

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.tried = (*self.tried, action)
        right = any(self.tried == key[: len(self.tried)] for key in self._opened_by())
        solved = right and len(self.tried) == 4
        info = {"success": solved, "action_is_effective": True}
        return "click" if right else "stuck", 0.1 * right + solved, solved or not right, info

    def _opened_by(self) -> tuple[tuple[str, ...], ...]:
        return (self.key,)

    def best_action(self, actions_left: int) -> str:
        return self.key[len(self.tried)]


class MasterKey(Lock):
    def _opened_by(self) -> tuple[tuple[str, ...], ...]:
        return (self.key, self.keys[2])


class TellsTheAnswer(Walk):
    def _seen(self) -> str:
        right, wrong = self.actions if self.goal == 0 else self.actions[::-1]
        return f"{super()._seen()} (not {wrong}, {right})"


class Walled(Walk):
    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        shown, reward, over, info = super()._act(action)
        lost = self.goal == 0
        return shown, reward * (not lost), over, {**info, "success": info["success"] and not lost}


class CostlyEnd(Walk):
    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        shown, reward, over, info = super()._act(action)
        return shown, -0.5 if reward else -1.5 if over else 0.3 * (best_action(self, 1) == action), over, info


class Diary(Walk):
    def _start(self, options: Mapping[str, Any]) -> str:
        self.pages = ""
        return super()._start(options)

    def _seen(self) -> str:
        self.pages += super()._seen()
        return self.pages


PLANTED = [
    (GlobalRandom, "same seed", "FAULT"),
    (Leftover, "same seed", "FAULT"),
    (SharedState, "same seed", "FAULT"),
    (HashOrder, "another process", "FAULT"),
    (SharedLuck, "luck of a group", "FAULT"),
    (StartFromLuck, "luck of a group", "FAULT"),
    (StrangeLetters, "returned values", "FAULT"),
    (NotANumber, "returned values", "FAULT"),
    (CountedSuccess, "returned values", "FAULT"),
    (Bare, "returned values", "FAULT"),
    (RaisesOnSurrogates, "any string", "FAULT"),
    (LimitIsTheEnd, "the end", "FAULT"),
    (GoalIsALimit, "the end", "FAULT"),
    (PaysAfterTheEnd, "the end", "FAULT"),
    (NoEnd, "the end", "note"),
    (WrongOracle, "who succeeds", "FAULT"),
    (PaidToFail, "who succeeds", "FAULT"),
    (AlwaysRight, "cheat: one action", "FAULT"),
    (GarbageWins, "cheat: one action", "FAULT"),
    (MasterKey, "cheat: one sequence", "FAULT"),
    (TellsTheAnswer, "cheat: in sight", "FAULT"),
    (CostlyEnd, "cheat: stop early", "FAULT"),
    (Walled, "nothing to win", "FAULT"),
    (Diary, "length", "note"),
]

SOUND = (Walk, Lock)

for _kind in {*SOUND, *(kind for kind, _, _ in PLANTED)}:
    gymnasium.register(f"planted/{_kind.__name__}-v0", entry_point=_kind, disable_env_checker=True)
