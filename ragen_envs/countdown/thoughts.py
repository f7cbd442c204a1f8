"""What somebody who solves a Countdown task thinks before the answer: the arithmetic, one operation after the other."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ragen_envs.countdown.arithmetic import Expression, parse
from ragen_envs.countdown.env import Countdown
from ragen_envs.wording import listed, pick


def countdown_thought(env: Countdown, actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `thoughts.explain`."""
    expression = parse(actions[0])
    numbers = listed([str(number) for number in env.numbers])
    task = pick(rng, f"From {numbers} I want {env.target}", f"The target is {env.target}", f"I need {env.target}")
    if expression is None or expression.value is None or not expression.numbers[1:]:
        return f"{task}{pick(rng, ', and I try', '. I try', '. Let me try')} {actions[0]}."
    steps = listed(operations(expression))
    if expression.value == env.target and sorted(expression.numbers) == sorted(env.numbers):
        return pick(
            rng,
            f"{task}, and {steps}. So I answer {actions[0]}.",
            f"{steps}, so the answer is {actions[0]}.",
            f"{task}: {steps}. This uses every number once, as in {actions[0]}.",
            f"{steps}. That is the target, and I write {actions[0]}.",
        )
    return pick(rng, f"{task}, and {steps}. I try {actions[0]}.", f"{steps}. {task}, but let me try {actions[0]}.")


def operations(expression: Expression) -> list[str]:
    """The operations of an expression with their results, in the order in which they are carried out.

    Example:
        >>> operations(parse("(3 + 4) * 5 - 6"))
        ['3 + 4 = 7', '7 * 5 = 35', '35 - 6 = 29']
    """
    return [
        f"{_spelled(each.left)} {each.symbol} {_spelled(each.right)} = {each.value}" for each in expression.operations
    ]


def _spelled(part: Fraction) -> str:
    return str(part) if part >= 0 and part.denominator == 1 else f"({part})"
