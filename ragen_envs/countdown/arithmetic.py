"""Arithmetic on a few whole numbers: reading expressions, writing random ones, and finding one with a given value.

Values are exact fractions, so rounding never decides whether an answer is right. Nothing is passed to `eval`: Python's
own parser reads at most `MAX_LENGTH` characters of numbers, operators and parentheses.
"""

import ast
import functools
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

OPERATORS = "+-*/"
MAX_LENGTH = 256
"""Longest expression, in characters: enough for any task here, and too short for numbers that are slow to compute."""
MOST_NUMBERS = 6
"""The most numbers that `solve` takes. To show that there is no solution takes under a second; with more far longer."""

_APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}
_SYMBOLS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}
_SPELLINGS = str.maketrans("×÷−", "*/-")
_ALPHABET = set("0123456789+-*/() ")
_NUMBER = re.compile(r"[0-9]+")
_TWO_NUMBERS = re.compile(r"[0-9] [0-9]|[*/] [*/]")
_BETWEEN = re.compile(r"(?<=[0-9)])[-+*/]")
_RESULT = re.compile(r" *-?[0-9]+")

# Subsets of this many numbers get a table of all their values; larger ones are searched backwards from the target.
_TABLE_NUMBERS = 3


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


def _spelled(part: Fraction) -> str:
    return str(part) if part >= 0 and part.denominator == 1 else f"({part})"


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
    try:
        tree = ast.parse(canonical, mode="eval").body
    except SyntaxError:
        return None
    if len(canonical) > MAX_LENGTH:
        return None
    numbers: list[int] = []
    steps: list[str] = []

    def value_of(node: ast.expr) -> Fraction | None:
        if isinstance(node, ast.BinOp) and type(node.op) in _SYMBOLS:
            left, right = value_of(node.left), value_of(node.right)
            symbol = _SYMBOLS[type(node.op)]
            value = None if left is None or right is None else _apply(symbol, left, right)
            if left is not None and right is not None and value is not None:
                steps.append(f"{_spelled(left)} {symbol} {_spelled(right)} = {value}")
            return value
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            operand = value_of(node.operand)
            return None if operand is None else -operand
        if not isinstance(node, ast.Constant):
            raise ValueError(f"{ast.dump(node)} is nothing that an expression has")
        numbers.append(node.value)  # type: ignore[arg-type]  # the text has whole numbers only
        return Fraction(numbers[-1])

    try:
        value = value_of(tree)
    except ValueError:
        return None
    return Expression(canonical, tuple(numbers), value, tuple(steps))


def _apply(symbol: str, left: Fraction, right: Fraction) -> Fraction | None:
    """The value of one operation; None for a division by zero."""
    return None if symbol == "/" and right == 0 else _APPLY[symbol](left, right)


@dataclass(frozen=True)
class _Term:
    """A piece of an expression and how strongly its outermost operator binds."""

    text: str
    strength: int = 3

    def join(self, symbol: str, right: "_Term") -> "_Term":
        """This term, the operator and another term, with parentheses only where they are needed."""
        strength = _STRENGTH[symbol]
        ties = symbol in "-/"  # 1 - (2 - 3) is not 1 - 2 - 3
        texts = self._inside(self.strength < strength), right._inside(right.strength < strength + ties)
        return _Term(f" {symbol} ".join(texts), strength)

    def _inside(self, needs_parentheses: bool) -> str:
        return f"({self.text})" if needs_parentheses else self.text


def random_expression(numbers: Sequence[int], rng: np.random.Generator, operators: str = OPERATORS) -> str:
    """Writes a random expression that uses each number once. It may divide by zero.

    It is uniform over the orders of the numbers, the ways to put parentheses around every operation, and the
    operators. Parentheses without effect are left out of the text.

    Args:
        numbers: At least one positive integer.
        rng: Source of the choices.
        operators: The operators to choose from, each once.

    Returns:
        The canonical text, as `parse` returns it.
    """
    count = len(numbers)
    # In postfix notation a number is +1 and an operator is -1. Of all rotations of any order of these marks, exactly
    # one is an expression (the cycle lemma): the one that starts after the last minimum of the running sum.
    marks = rng.permutation(np.repeat([1, -1], [count, count - 1]))
    start = 2 * count - 1 - int(np.argmin(np.cumsum(marks)[::-1]))
    order = iter(rng.permutation(count).tolist())
    symbols = iter(rng.integers(len(operators), size=count - 1).tolist())
    terms: list[_Term] = []
    for mark in np.roll(marks, -start).tolist():
        if mark == 1:
            terms.append(_Term(str(numbers[next(order)])))
        else:
            right = terms.pop()
            terms.append(terms.pop().join(operators[next(symbols)], right))
    return terms[0].text


def solve(numbers: Sequence[int], target: int, operators: str = OPERATORS) -> str | None:
    """Finds an expression that uses each number once and has a given value, if there is one.

    Args:
        numbers: One to `MOST_NUMBERS` positive integers.
        target: The value.
        operators: The operators that may be used, each once.

    Returns:
        The canonical text of an expression, always the same for the same arguments; None if there is no solution.

    Raises:
        ValueError: If there are too many numbers.

    Example:
        >>> solve((3, 3, 8, 8), 24)
        '8 / (3 - 8 / 3)'
        >>> solve((1, 1), 5) is None
        True
    """
    if len(numbers) > MOST_NUMBERS:
        raise ValueError(f"{len(numbers)} numbers are too many to search; solve takes up to {MOST_NUMBERS}")
    found = _Search(numbers, operators).find((1 << len(numbers)) - 1, Fraction(target))
    return None if found is None else found.text


class _Search:
    """All expressions over subsets of some numbers. A subset is an integer whose bit i stands for number i."""

    def __init__(self, numbers: Sequence[int], operators: str) -> None:
        self._numbers, self._operators = numbers, operators
        self.table, self.find = functools.cache(self._table), functools.cache(self._find)

    def _find(self, subset: int, target: Fraction) -> _Term | None:
        """A term over all numbers of a subset with a given value."""
        if subset.bit_count() <= _TABLE_NUMBERS:
            return self.table(subset).get(target)
        for part, rest in _splits(subset):
            for value, term in self.table(part).items():
                for symbol, is_left, missing in self._completions(value, target):
                    other = self._anything(rest, symbol) if missing is None else self.find(rest, missing)
                    if other is not None:
                        return term.join(symbol, other) if is_left else other.join(symbol, term)
        return None

    def _table(self, subset: int) -> dict[Fraction, _Term]:
        """Every value that the numbers of a subset can make, with a term for it."""
        table: dict[Fraction, _Term] = {}
        if subset.bit_count() == 1:
            number = self._numbers[subset.bit_length() - 1]
            table[Fraction(number)] = _Term(str(number))
        for part, rest in _splits(subset):
            for one in self.table(part).items():
                for other in self.table(rest).items():
                    for (left, left_term), (right, right_term) in ((one, other), (other, one)):
                        for symbol in self._operators:
                            value = _apply(symbol, left, right)
                            if value is not None and value not in table:
                                table[value] = left_term.join(symbol, right_term)
        return table

    def _completions(self, value: Fraction, target: Fraction) -> Iterator[tuple[str, bool, Fraction | None]]:
        """What makes the target from `value`: operator, whether `value` is on its left, the other operand's value.

        None means any value except zero, which cannot divide.
        """
        for symbol in self._operators:
            if symbol == "+":
                yield symbol, True, target - value
            elif symbol == "-":
                yield symbol, True, value - target
                yield symbol, False, value + target
            elif value == 0:
                if target == 0:
                    yield symbol, True, None
            elif symbol == "*":
                yield symbol, True, target / value
            else:
                yield symbol, False, target * value
                if target != 0:
                    yield symbol, True, value / target

    def _anything(self, subset: int, symbol: str) -> _Term:
        """Some term over all numbers of a subset. The `symbol` is "*" or "/", so that its value is not zero."""
        terms = (_Term(str(number)) for i, number in enumerate(self._numbers) if subset >> i & 1)
        return functools.reduce(lambda left, right: left.join(symbol, right), terms)


def _splits(subset: int) -> Iterator[tuple[int, int]]:
    """Each way to divide a subset into two parts that are not empty, once; the smaller part comes first."""
    part = (subset - 1) & subset
    while part:
        rest = subset ^ part
        if (part.bit_count(), part) < (rest.bit_count(), rest):
            yield part, rest
        part = (part - 1) & subset
