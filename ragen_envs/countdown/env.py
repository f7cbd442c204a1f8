"""Countdown: some numbers, a target, one arithmetic expression. A reasoning task of a single turn.

`arithmetic` reads and evaluates expressions; here are the task and its reward. It is also the shortest environment with
free-form actions, and a template for your own: an instruction, a start, a parser of actions, and what an action does.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ragen_envs.countdown.arithmetic import MAX_LENGTH, OPERATORS, parse, random_expression
from ragen_envs.text_env import ONE_SHOT, TextEnv
from ragen_envs.wording import listed, pick

SOLVED_REWARD, NUMBERS_REWARD = 1.0, 0.1
MOST_NUMBERS, LARGEST_NUMBER = 6, 1_000_000
MAX_TRIES = 20_000


def _checked_range(name: str, limits: Sequence[int], lowest: int) -> tuple[int, int]:
    low, high = map(int, limits)
    if not lowest <= low <= high <= LARGEST_NUMBER:
        raise ValueError(f"{name}={limits!r} must be two integers, {lowest} <= low <= high <= {LARGEST_NUMBER}")
    return low, high


class Countdown(TextEnv):
    """Combine all of the given numbers into the target.

    ## Description
    The answer is an expression with ``+ - * /`` and parentheses that uses each number exactly once and equals the
    target. The defaults are like the tasks that RAGEN keeps from the data set Countdown-Tasks-3to4: three or four
    numbers, and a target that plus and minus can reach. ``operators="+-*/"`` makes targets of all four operations,
    which is harder. Answers may always use all four.

    ## Action Space
    Text: an expression as `arithmetic.parse` reads it, such as ``(3 + 4) * 5``. A minus may be a sign, ``× ÷ −`` are
    read as ``* / -``, and a result at the end, as in ``3 + 4 = 7``, is ignored. Any other text is an invalid action.

    ## Observation Space
    Text: the lines ``Numbers: 3, 4, 5`` and ``Target: 35``; after an action the expression, its value, and what is
    wrong.

    ## Starting State
    A uniformly random one of `counts`. Then so many uniformly random numbers and a uniformly random expression over
    them (see `arithmetic.random_expression`), which are drawn again until the value is a whole number in
    `target_range`.

    ## Rewards
    1 for a solution. 0.1 for an expression with the right numbers whose value is not the target, or that divides by
    zero. 0 for one with other numbers. Values are exact fractions (RAGEN accepts floats within 0.00001 of the target).

    ## Episode End
    Terminated after one valid expression.

    ## Information
    `success`: the expression is a solution. `action_is_valid`: the action is an expression. `action_is_effective`: the
    same. `value`: its value as text, such as "7/2" or "undefined"; "" if there was no expression. `uses_the_numbers`:
    its numbers are those of the task, in any order.

    ## Arguments
    See `__init__`.

    ## Version History
    v0: first version.

    ## Source
    The task is that of RAGEN (MIT, arXiv 2504.20073), which takes it from the data set
    Countdown-Tasks-3to4; here tasks are generated. This code is under Apache-2.0.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"value": "", "uses_the_numbers": False}
    horizon = 1
    turn_limits = ONE_SHOT

    numbers: tuple[int, ...]
    """The numbers to use. Exists after `reset`."""

    target: int
    """The value to reach. Exists after `reset`."""

    def __init__(
        self,
        counts: int | Sequence[int] = (3, 4),
        number_range: Sequence[int] = (1, 99),
        target_range: Sequence[int] = (10, 99),
        operators: str = "+-",
        render_mode: str | None = None,
    ) -> None:
        """Sets the kind of task; `reset` draws one.

        Args:
            counts: How many numbers a task has, from 2 to 6; several counts are equally likely.
            number_range: Smallest and largest number, from 1 to 1,000,000.
            target_range: Smallest and largest target, from -1,000,000 to 1,000,000.
            operators: The operators that make a target: some of ``"+-*/"``.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If an argument is out of its range; at a `reset`, if no random task meets all of them.
        """
        self._counts = tuple(counts) if isinstance(counts, Sequence) else (counts,)
        if not self._counts or not all(2 <= count <= MOST_NUMBERS for count in self._counts):
            raise ValueError(f"counts={counts!r} must be one or more integers from 2 to {MOST_NUMBERS}")
        self._number_range = _checked_range("number_range", number_range, 1)
        self._target_range = _checked_range("target_range", target_range, -LARGEST_NUMBER)
        if not operators or not set(operators) <= set(OPERATORS):
            raise ValueError(f"operators={operators!r} must be some of {OPERATORS!r}, each once")
        self._operators = operators
        super().__init__(render_mode=render_mode, max_observation_length=4 * MAX_LENGTH, max_action_length=MAX_LENGTH)

    @property
    def instruction(self) -> str:
        """The task, with a solved example."""
        return (
            "Write an expression that equals the target and uses each of the numbers exactly once. "
            "Allowed are + - * / and parentheses.\n"
            "Example: for the numbers 2, 3, 4 and the target 20 an answer is (2 + 3) * 4"
        )

    def best_action(self, actions_left: int) -> str:
        """The expression that the target was made from."""
        return self._solution

    def random_action(self, rng: np.random.Generator) -> str:
        """A uniformly random expression of the numbers."""
        return random_expression(self.numbers, rng)

    def explain(self, actions: Sequence[str], rng: np.random.Generator) -> str:
        """The arithmetic, one operation after the other."""
        expression = parse(actions[0])
        numbers = listed([str(number) for number in self.numbers])
        target = self.target
        task = pick(rng, f"From {numbers} I want {target}", f"The target is {target}", f"I need {target}")
        if expression is None or expression.value is None or not expression.numbers[1:]:
            return f"{task}{pick(rng, ', and I try', '. I try', '. Let me try')} {actions[0]}."
        steps = listed(expression.steps)
        if expression.value == target and sorted(expression.numbers) == sorted(self.numbers):
            return pick(
                rng,
                f"{task}, and {steps}. So I answer {actions[0]}.",
                f"{steps}, so the answer is {actions[0]}.",
                f"{task}: {steps}. This uses every number once, as in {actions[0]}.",
                f"{steps}. That is the target, and I write {actions[0]}.",
            )
        return pick(rng, f"{task}, and {steps}. I try {actions[0]}.", f"{steps}. {task}, but let me try {actions[0]}.")

    def difficulty(self) -> float:
        """Numbers to combine."""
        return float(len(self.numbers))

    def _start(self, options: Mapping[str, Any]) -> str:
        count = self._counts[self.np_random.integers(len(self._counts))]
        (low, high), (least, most) = self._number_range, self._target_range
        for _ in range(MAX_TRIES):
            self.numbers = tuple(self.np_random.integers(low, high + 1, size=count).tolist())
            self._solution = random_expression(self.numbers, self.np_random, self._operators)
            expression = parse(self._solution)
            assert expression is not None
            value = expression.value
            if value is not None and value.denominator == 1 and least <= value <= most:
                break
        else:
            said = f"{MAX_TRIES} random expressions over {count} numbers from {self._number_range}"
            raise ValueError(f"none of {said} has its value in {self._target_range}; widen a range or allow operators")
        self.target = int(value)
        return f"Numbers: {', '.join(map(str, self.numbers))}\nTarget: {self.target}"

    def _parse_action(self, text: str) -> str | None:
        expression = parse(text)
        return None if expression is None else expression.text

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        expression = parse(action)
        assert expression is not None  # `_parse_action` returned its canonical text
        uses_the_numbers = sorted(expression.numbers) == sorted(self.numbers)
        success = uses_the_numbers and expression.value == self.target
        value = "undefined" if expression.value is None else str(expression.value)
        if success:
            reward, verdict = SOLVED_REWARD, "Correct."
        elif uses_the_numbers:
            reward, verdict = NUMBERS_REWARD, f"The target is {self.target}."
        else:
            reward, verdict = 0.0, "Use each of the numbers exactly once."
        info = {"success": success, "action_is_effective": True, "value": value, "uses_the_numbers": uses_the_numbers}
        return f"{expression.text} = {value}\n{verdict}", reward, True, info
