"""Countdown as a text environment, and a template for your own with free-form actions: `arithmetic` reads them."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from ragen_envs.countdown.arithmetic import MAX_LENGTH, OPERATORS, parse, random_expression
from ragen_envs.text_env import ONE_SHOT, TextEnv
from ragen_envs.wording import listed, phrases, pick

SOLVED_REWARD, NUMBERS_REWARD = 1.0, 0.1
MOST_NUMBERS, LARGEST = 6, 99
SMALLEST_TARGET = 10
MAX_TRIES = 20_000

_THOUGHTS = phrases(__file__)


class Countdown(TextEnv):
    """Combine all of the given numbers into the target.

    ## Description
    The answer is an expression with ``+ - * /`` and parentheses that uses each number exactly once and equals the
    target. The defaults are like what RAGEN keeps from the data set Countdown-Tasks-3to4: three or four numbers from 1
    to 99, and a target from 10 to 99 that plus and minus can reach. Answers may always use all four operations.

    ## Action Space
    Text: an expression as `arithmetic.parse` reads it, such as ``(3 + 4) * 5``. A minus may be a sign, ``× ÷ −`` are
    read as ``* / -``, and a result at the end, as in ``3 + 4 = 7``, is ignored. Any other text is an invalid action.

    ## Observation Space
    Text: ``Numbers: 3, 4, 5`` and ``Target: 35``; after an action the expression, its value, and what is wrong.

    ## Starting State
    A uniformly random one of `counts`. Then so many uniformly random numbers and a uniformly random expression over
    them (see `arithmetic.random_expression`), which are drawn again until the value can be a target.

    ## Rewards
    1 for a solution. 0.1 for an expression with the right numbers whose value is not the target, or that divides by
    zero. 0 for one with other numbers. Values are exact fractions (RAGEN accepts floats within 0.00001 of the target).

    ## Episode End
    Terminated after one valid expression.

    ## Information
    `success`: the expression is a solution. `action_is_valid`: the action is an expression. `action_is_effective`: the
    same. `value`: its value as text, such as "7/2" or "undefined"; "" if there was no expression. `uses_the_numbers`:
    its numbers are those of the task, in any order.

    ## Version History
    v0: first version.

    ## Source
    The task is RAGEN's (MIT, arXiv 2504.20073), which takes it from a data set; here tasks are generated.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"value": "", "uses_the_numbers": False}
    horizon = 1
    turn_limits = ONE_SHOT
    plain_arguments = ("operators",)

    numbers: tuple[int, ...]
    """The numbers to use. Exists after `reset`."""

    target: int
    """The value to reach. Exists after `reset`."""

    def __init__(
        self,
        counts: int | Sequence[int] = (3, 4),
        operators: str = "+-",
        render_mode: str | None = None,
    ) -> None:
        """Sets the kind of task; `reset` draws one.

        Args:
            counts: How many numbers a task has, from 2 to 6; several counts are equally likely.
            operators: The operators that make a target; ``"+-*/"`` is harder.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ValueError: If an argument is out of its range; at a `reset`, if no random task is found.
        """
        self._counts = tuple(counts) if isinstance(counts, Sequence) else (counts,)
        if not self._counts or not all(2 <= count <= MOST_NUMBERS for count in self._counts):
            raise ValueError(f"counts={counts!r} must be one or more integers from 2 to {MOST_NUMBERS}")
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
        expression, target = parse(actions[0]), self.target
        numbers, steps = listed([str(number) for number in self.numbers]), ""
        task = pick(rng, f"From {numbers} I want {target}", f"The target is {target}", f"I need {target}")
        if expression is None or expression.value is None or not expression.numbers[1:]:
            kind = "undefined"
        else:
            is_solved = expression.value == target and sorted(expression.numbers) == sorted(self.numbers)
            kind, steps = "solved" if is_solved else "not_solved", listed(expression.steps)
        return pick(rng, *_THOUGHTS[kind]).format(task=task, steps=steps, answer=actions[0])

    def difficulty(self) -> float:
        """Numbers to combine."""
        return float(len(self.numbers))

    def _start(self, options: Mapping[str, Any]) -> str:
        count = self._counts[self.np_random.integers(len(self._counts))]
        for _ in range(MAX_TRIES):
            self.numbers = tuple(self.np_random.integers(1, LARGEST + 1, size=count).tolist())
            self._solution = random_expression(self.numbers, self.np_random, self._operators)
            expression = parse(self._solution)
            assert expression is not None
            value = expression.value
            if value is not None and value.denominator == 1 and SMALLEST_TARGET <= value <= LARGEST:
                break
        else:
            said = f"none of {MAX_TRIES} random expressions over {count} numbers can be a target"
            raise ValueError(f"{said} with operators={self._operators!r}; allow more operators or fewer numbers")
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
