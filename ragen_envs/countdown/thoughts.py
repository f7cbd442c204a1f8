"""What somebody who solves a Countdown task thinks before the answer: the arithmetic, one operation after the other.

Left out: how the expression was found. The solver tries all of them.
"""

import ast
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from ragen_envs.countdown.arithmetic import parse
from ragen_envs.countdown.env import Countdown
from ragen_envs.wording import listed, pick

_SYMBOLS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}


def countdown_thought(env: Countdown, actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `thoughts.explain`."""
    expression = parse(actions[0])
    numbers = listed([str(number) for number in env.numbers])
    task = pick(rng, f"From {numbers} I want {env.target}", f"The target is {env.target}", f"I need {env.target}")
    if expression is None or expression.value is None or not expression.numbers[1:]:
        return f"{task}{pick(rng, ', and I try', '. I try', '. Let me try')} {actions[0]}."
    steps = listed(operations(expression.text))
    if expression.value == env.target and sorted(expression.numbers) == sorted(env.numbers):
        return pick(
            rng,
            f"{task}, and {steps}. So I answer {actions[0]}.",
            f"{steps}, so the answer is {actions[0]}.",
            f"{task}: {steps}. This uses every number once, as in {actions[0]}.",
            f"{steps}. That is the target, and I write {actions[0]}.",
        )
    return pick(rng, f"{task}, and {steps}. I try {actions[0]}.", f"{steps}. {task}, but let me try {actions[0]}.")


def operations(text: str) -> list[str]:
    """The operations of an expression in the order in which they are carried out.

    Args:
        text: An expression that does not divide by zero, as `arithmetic.parse` writes it.

    Example:
        >>> operations("(3 + 4) * 5 - 6")
        ['3 + 4 = 7', '7 * 5 = 35', '35 - 6 = 29']
    """
    found: list[str] = []
    _value(ast.parse(text, mode="eval").body, found)
    return found


def _value(node: ast.expr, found: list[str]) -> Fraction:
    """The value of a part; adds its operations to `found`."""
    if isinstance(node, ast.UnaryOp):
        return -_value(node.operand, found)
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left, found), _value(node.right, found)
        symbol = _SYMBOLS[type(node.op)]
        said = [str(part) if part >= 0 and part.denominator == 1 else f"({part})" for part in (left, right)]
        operation = parse(f"({left}) {symbol} ({right})")
        assert operation is not None and operation.value is not None
        found.append(f"{said[0]} {symbol} {said[1]} = {operation.value}")
        return operation.value
    assert isinstance(node, ast.Constant) and isinstance(node.value, int)
    return Fraction(node.value)
