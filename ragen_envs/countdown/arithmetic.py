"""Arithmetic on a few whole numbers: reading expressions and writing random ones.

Values are exact fractions, so rounding never decides whether an answer is right. Nothing is passed to `eval`: Python's
own parser reads at most `MAX_LENGTH` characters of numbers, operators and parentheses.
"""

import ast
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

OPERATORS = "+-*/"
MAX_LENGTH = 256
"""Longest expression, in characters: enough for any task here, and too short for numbers that are slow to compute."""

_OPERATIONS = {
    ast.Add: ("+", operator.add),
    ast.Sub: ("-", operator.sub),
    ast.Mult: ("*", operator.mul),
    ast.Div: ("/", operator.truediv),
}
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}
_SPELLINGS = str.maketrans("×÷−", "*/-")
_ALPHABET = set("0123456789+-*/() ")
_NUMBER = re.compile(r"[0-9]+")
_TWO_NUMBERS = re.compile(r"[0-9] [0-9]|[*/] [*/]")
_BETWEEN = re.compile(r"(?<=[0-9)])[-+*/]")
_RESULT = re.compile(r" *-?[0-9]+")


@dataclass(frozen=True)
class Expression:
    """An expression as `parse` has read it.

    Attributes:
        text: Its canonical spelling: ASCII, one space on each side of an operator, parentheses as they were written.
        numbers: Its numbers, from left to right.
        value: Its value; None if it divides by zero.
        steps: Its operations with their results, in the order in which they are carried out, such as "3 + 4 = 7".
    """

    text: str
    numbers: tuple[int, ...]
    value: Fraction | None
    steps: tuple[str, ...] = field(default=(), repr=False, compare=False)


def parse(text: str) -> Expression | None:
    """Reads an expression.

    It may have whole numbers, ``+ - * /`` (also ``× ÷ −``), minus signs and parentheses, with the usual order of
    operations. A result at the end, as in ``1 + 2 = 3``, is dropped, whether it is right or wrong.

    Returns:
        The expression, or None if the text is not one or has more than `MAX_LENGTH` characters.

    Example:
        >>> parse("(3+4)×5 = 35")
        Expression(text='(3 + 4) * 5', numbers=(3, 4, 5), value=Fraction(35, 1))
        >>> parse("3 4") is None
        True
    """
    text = text.strip()
    if len(text) > MAX_LENGTH:
        return None
    text, equals, result = " ".join(text.split()).translate(_SPELLINGS).partition("=")
    if (equals and not _RESULT.fullmatch(result)) or not set(text) <= _ALPHABET or _TWO_NUMBERS.search(text):
        return None
    text = _NUMBER.sub(lambda number: str(int(number[0])), text.replace(" ", ""))
    canonical = _BETWEEN.sub(r" \g<0> ", text)  # an operator after an operand; a minus elsewhere is a sign
    if len(canonical) > MAX_LENGTH:
        return None
    numbers: list[int] = []
    steps: list[str] = []
    try:
        value = _value_of(ast.parse(canonical, mode="eval").body, numbers, steps)
    except (SyntaxError, ValueError):
        return None
    return Expression(canonical, tuple(numbers), value, tuple(steps))


def _value_of(node: ast.expr, numbers: list[int], steps: list[str]) -> Fraction | None:
    """The value of a part of an expression, whose numbers and steps are appended; None if it divides by zero."""
    match node:
        case ast.Constant(int(number)):
            numbers.append(number)
            return Fraction(number)
        case ast.UnaryOp(ast.USub(), operand):
            value = _value_of(operand, numbers, steps)
            return None if value is None else -value
        case ast.BinOp(left_node, operation, right_node) if type(operation) in _OPERATIONS:
            symbol, apply = _OPERATIONS[type(operation)]
            left, right = _value_of(left_node, numbers, steps), _value_of(right_node, numbers, steps)
            if left is None or right is None or (symbol == "/" and right == 0):
                return None
            value = apply(left, right)
            steps.append(f"{_spelled(left)} {symbol} {_spelled(right)} = {value}")
            return value
    raise ValueError(f"{ast.dump(node)} is nothing that an expression has")


def _spelled(part: Fraction) -> str:
    return str(part) if part >= 0 and part.denominator == 1 else f"({part})"


def random_expression(numbers: Sequence[int], rng: np.random.Generator, operators: str = OPERATORS) -> str:
    """Writes a random expression that uses each number once. It may divide by zero.

    It is uniform over the orders of the numbers, the ways to put parentheses around every operation, and the
    operators. The text is canonical as in `parse`, without parentheses that have no effect.
    """
    count = len(numbers)
    # In postfix notation a number is +1 and an operator is -1. Of all rotations of any order of these marks, exactly
    # one is an expression (the cycle lemma): the one that starts after the last minimum of the running sum.
    marks = rng.permutation(np.repeat([1, -1], [count, count - 1]))
    start = 2 * count - 1 - int(np.argmin(np.cumsum(marks)[::-1]))
    order = iter(rng.permutation(count).tolist())
    symbols = iter(rng.integers(len(operators), size=count - 1).tolist())
    terms: list[tuple[str, int]] = []  # each with how strongly its outermost operator binds
    for mark in np.roll(marks, -start).tolist():
        if mark == 1:
            terms.append((str(numbers[next(order)]), 3))
            continue
        symbol = operators[next(symbols)]
        strength, ties = _STRENGTH[symbol], symbol in "-/"  # 1 - (2 - 3) is not 1 - 2 - 3
        (right, right_strength), (left, left_strength) = terms.pop(), terms.pop()
        left = f"({left})" if left_strength < strength else left
        right = f"({right})" if right_strength < strength + ties else right
        terms.append((f"{left} {symbol} {right}", strength))
    return terms[0][0]
