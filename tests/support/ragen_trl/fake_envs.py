"""Environments that follow a script, for tests that must know what will be shown and paid."""

import time
from collections.abc import Sequence
from threading import Event
from typing import Any

from ragen_trl.rollout.interfaces import Start


class Quiz:
    """Asks a given number of questions, each longer than the one before, and pays 1, 2, 3, … for the answers.

    The last one terminates, or truncates with ``limit="turns"``. ``padding`` characters stand beside the first number.
    It waits before every question for so many ``seconds`` at most, longer before some than before others.
    """

    def __init__(self, questions: int, truncates: bool = False, padding: int = 3, seconds: float = 0.0) -> None:
        self.questions = questions
        self.seconds = seconds
        self.truncates = truncates
        self.padding = padding
        self.answers: list[str] = []
        self.resets: list[tuple[int | None, dict[str, Any] | None]] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.answers = []
        self.resets.append((seed, options))
        return self._question(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self.seconds:
            time.sleep(self.seconds * (1 + len(self.answers) * 7 % 5) / 5)
        self.answers.append(action)
        asked = len(self.answers)
        over = asked == self.questions
        info = {"success": over, "limit": "turns" if over and self.truncates else "", "asked": asked}
        return self._question(), float(asked), over and not self.truncates, over and self.truncates, info

    def _question(self) -> str:
        asked = len(self.answers)
        return f"{asked}" + "x" * (self.padding + asked)


def quizzes(lengths: Sequence[int]) -> list[Quiz]:
    """One quiz a length, each with questions of its own size."""
    return [Quiz(length, padding=2 + 5 * index) for index, length in enumerate(lengths)]


def starts(count: int) -> list[Start]:
    """Seeds 0, 1, … each with its own sampling seed."""
    return [Start(seed, sampling_seed=100 + seed) for seed in range(count)]


class Faulty(Quiz):
    """A quiz that raises in some steps, numbered from 1 on (0 is `reset`), and waits for a gate in others."""

    def __init__(
        self, questions: int, crashes: Sequence[int] = (), hangs: Sequence[int] = (), gate: Event | None = None
    ) -> None:
        super().__init__(questions)
        self.crashes, self.hangs, self.gate = crashes, hangs, gate or Event()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._perhaps_fail(0)
        return super().reset(seed=seed, options=options)

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self._perhaps_fail(len(self.answers) + 1)
        return super().step(action)

    def _perhaps_fail(self, moment: int) -> None:
        if moment in self.crashes:
            raise ConnectionError(f"nobody answers at {moment}")
        if moment in self.hangs:
            self.gate.wait(60)
