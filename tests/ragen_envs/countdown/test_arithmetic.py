"""Expressions: what is read, what is refused, what random ones look like, and which targets can be reached."""

import ast
import itertools
import operator
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from ragen_envs.countdown.arithmetic import MAX_LENGTH, MOST_NUMBERS, Expression, parse, random_expression, solve
from tests.support.ragen_envs.timing import assert_ratio


@pytest.mark.parametrize(
    ("text", "canonical", "numbers", "value"),
    [
        ("7", "7", (7,), 7),
        ("2+3*4", "2 + 3 * 4", (2, 3, 4), 14),
        ("(2+3)*4", "(2 + 3) * 4", (2, 3, 4), 20),
        ("10 - 4 - 3", "10 - 4 - 3", (10, 4, 3), 3),
        ("10-(4-3)", "10 - (4 - 3)", (10, 4, 3), 9),
        ("24/4/3", "24 / 4 / 3", (24, 4, 3), 2),
        ("1/3 + 1/6", "1 / 3 + 1 / 6", (1, 3, 1, 6), Fraction(1, 2)),
        ("8/(3-8/3)", "8 / (3 - 8 / 3)", (8, 3, 8, 3), 24),
        ("-3 + 5", "-3 + 5", (3, 5), 2),
        ("-3*-4", "-3 * -4", (3, 4), 12),
        ("2--3", "2 - -3", (2, 3), 5),
        ("-(2+3)*4", "-(2 + 3) * 4", (2, 3, 4), -20),
        ("---3", "---3", (3,), -3),
        ("((5))", "((5))", (5,), 5),
        ("007 + 1", "7 + 1", (7, 1), 8),
        (" \n3\t×4 ÷ 2−1\n", "3 * 4 / 2 - 1", (3, 4, 2, 1), 5),
        ("3 + 4 = 7", "3 + 4", (3, 4), 7),
        ("3 + 4 = -99", "3 + 4", (3, 4), 7),  # what it claims does not count
    ],
)
def test_expressions_worked_by_hand(text: str, canonical: str, numbers: tuple[int, ...], value: Fraction) -> None:
    assert parse(text) == Expression(canonical, numbers, Fraction(value))
    assert parse(canonical) == parse(text)


@pytest.mark.parametrize("text", ["5/0", "1 + 5 / (3 - 3)", "0 * (5 / 0)", "1 / (2 / (3 - 3))", "-(1 / 0)", "0/0 - 1"])
def test_division_by_zero_has_no_value(text: str) -> None:
    expression = parse(text)
    assert expression is not None and expression.value is None


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            " ",
            "+",
            "-",
            "()",
            "(3",
            "3)",
            ")3(",
            "3 +",
            "* 3",
            "+3",
            "3 4",
            "3 (4)",
            "(3)(4)",
            "3 + + 4",
            "3 -* 4",
        ),
        *("3.5", "1e3", "3 ** 2", "7 // 2", "7 % 2", "1,000", "0x10", "3_0", "three", "x = 3", "3 | 4", "²", "٣", "３"),
        *("3 + 4 =", "3 + 4 = 7 = 7", "3 + 4 = seven", "= 7", "7 = 3 + 4", "3 + 4 == 7", "3 + 4 = 7.0", "3 + 4; 1"),
        *("__import__('os')", "<answer>3 + 4</answer>", "\x00", "\ud800", "日本語"),
    ],
)
def test_what_is_no_expression(text: str) -> None:
    assert parse(text) is None


def test_length_is_bounded_before_and_after_spelling() -> None:
    numbers_and_operators = "1" + "+1" * 63  # canonical: 64 numbers, 63 operators of 3 characters
    expression = parse(numbers_and_operators)
    assert expression is not None
    assert (len(expression.text), expression.value) == (253, 64)
    assert parse(numbers_and_operators + "+1") is None  # 257 characters once spelled out
    assert parse("9" * MAX_LENGTH) == Expression("9" * MAX_LENGTH, (10**MAX_LENGTH - 1,), Fraction(10**MAX_LENGTH - 1))
    assert parse("9" * (MAX_LENGTH + 1)) is None


@pytest.mark.parametrize(
    "text",
    [
        *("(" * 100_000, "-" * 100_000, "9" * 100_000, "9*" * 50_000 + "9", "9/7*" * 25_000 + "1", " " * 100_000),
        *("(" * 50_000 + "1" + ")" * 50_000, "1=" * 50_000, "1/(" * 80 + "1" + ")" * 10, "(" * 256, "-" * 255 + "x"),
    ],
    ids=lambda text: f"{text[:6]}-{len(text)}",
)
def test_hostile_texts_are_refused_at_once(text: str) -> None:
    assert parse(text) is None
    longest = "1/3+" * (MAX_LENGTH // 8 - 1) + "1"  # spelled out, it has nearly MAX_LENGTH characters
    assert parse(longest) is not None
    assert_ratio(lambda: parse(text), lambda: parse(longest), 20)


APPLY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def reference(node: ast.AST) -> Fraction | None:
    """The value of a Python syntax tree, None if it divides by zero; ValueError if it is not an expression here."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return Fraction(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = reference(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.BinOp) and type(node.op) in APPLY:
        left, right = reference(node.left), reference(node.right)
        if left is None or right is None or (isinstance(node.op, ast.Div) and right == 0):
            return None
        return APPLY[type(node.op)](left, right)
    raise ValueError(node)


def test_python_reads_the_same_expressions_with_the_same_values() -> None:
    rng = np.random.default_rng(0)
    outcomes: Counter[str] = Counter()
    for _ in range(20_000):
        text = "".join(rng.choice([*"1234+-*/()", "/(1-1)"], size=rng.integers(1, 10)))
        expression = parse(text)
        try:
            expected = reference(ast.parse(text, mode="eval").body)
        except (SyntaxError, ValueError):
            assert expression is None, text
            outcomes["refused"] += 1
        else:
            assert expression is not None and expression.value == expected, text
            outcomes["undefined" if expected is None else "read"] += 1
    assert min(outcomes[kind] for kind in ("refused", "undefined", "read")) > 100, outcomes


def test_deep_and_huge_within_the_length_are_exact() -> None:
    deep = parse("(" * 127 + "1" + ")" * 127)
    assert deep is not None and deep.value == 1
    chain = parse("*".join(["99"] * 50))
    assert chain is not None and chain.value == 99**50
    towers = parse("1" + "/(1" * 40 + ")" * 40)
    assert towers is not None and towers.value == 1


def test_random_expressions_are_uniform_over_trees_and_orders() -> None:
    # With minus alone the 2 trees over 3! orders are 12 different texts.
    rng = np.random.default_rng(0)
    counts = Counter(random_expression((1, 2, 3), rng, "-") for _ in range(12_000))
    assert len(counts) == 12
    assert "1 - (2 - 3)" in counts and "3 - 2 - 1" in counts
    assert all(850 < count < 1150 for count in counts.values())  # 1000 expected, 5 standard errors


def test_random_expressions_use_each_number_and_every_operator() -> None:
    rng = np.random.default_rng(0)
    symbols: Counter[str] = Counter()
    for _ in range(1000):
        text = random_expression((4, 4, 25, 7), rng)
        expression = parse(text)
        assert expression is not None and expression.text == text  # canonical as it is
        assert sorted(expression.numbers) == [4, 4, 7, 25]
        symbols.update(part for part in text.split() if part in {"+", "-", "*", "/"})
    assert sum(symbols.values()) == 3000
    assert all(650 < symbols[symbol] < 850 for symbol in "+-*/")  # 750 expected
    assert random_expression((5,), rng) == "5"


def test_random_expressions_are_a_function_of_the_generator() -> None:
    one, other = ([random_expression((1, 2, 3, 4), np.random.default_rng(s)) for s in range(9)] for _ in range(2))
    assert one == other
    assert len(set(one)) > 1


@pytest.mark.parametrize(
    ("numbers", "target", "operators"),
    [
        ((3, 3, 8, 8), 24, "+-*/"),  # only 8 / (3 - 8 / 3)
        ((1, 3, 4, 6), 24, "+-*/"),  # only 6 / (1 - 3 / 4)
        ((44, 19, 35), 98, "+-"),
        ((5, 5, 7, 1), 0, "+-*/"),
        ((5, 5, 7, 1), 0, "-/"),  # zero divided by the rest
        ((4, 4, 9, 9, 9), 0, "-*"),  # zero times the rest, which is no table any more
        ((2, 3), -1, "-"),
        ((9,), 9, "+"),
        ((25, 50, 75, 100, 3, 6), 952, "+-*/"),  # a famous one of the television show
    ],
)
def test_solutions_are_right(numbers: tuple[int, ...], target: int, operators: str) -> None:
    text = solve(numbers, target, operators)
    assert text is not None
    expression = parse(text)
    assert expression is not None
    assert (expression.text, expression.value) == (text, target)
    assert sorted(expression.numbers) == sorted(numbers)
    assert {part for part in text.split() if part in {"+", "-", "*", "/"}} <= set(operators)


@pytest.mark.parametrize(
    ("numbers", "target", "operators"),
    [((1, 1), 5, "+-*/"), ((9,), 8, "+-*/"), ((44, 19, 35), 98, "-*"), ((1, 1, 1, 1), 24, "+-*/"), ((2, 4), 3, "+-")],
)
def test_impossible_targets_have_no_solution(numbers: tuple[int, ...], target: int, operators: str) -> None:
    assert solve(numbers, target, operators) is None


def every_value(numbers: tuple[Fraction, ...]) -> set[Fraction]:
    """All values, found the obvious way: combine any two numbers and repeat with the rest."""
    if len(numbers) == 1:
        return set(numbers)
    values: set[Fraction] = set()
    for i, j in itertools.permutations(range(len(numbers)), 2):
        rest = tuple(number for k, number in enumerate(numbers) if k not in (i, j))
        left, right = numbers[i], numbers[j]
        for value in (left + right, left - right, left * right, *([left / right] if right else [])):
            values |= every_value((*rest, value))
    return values


@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 3, 8, 8), (1, 1, 2, 7), (2, 2, 2, 2)])
def test_solver_finds_exactly_what_brute_force_finds(numbers: tuple[int, ...]) -> None:
    reachable = every_value(tuple(map(Fraction, numbers)))
    targets = range(-30, 100)
    assert [target for target in targets if solve(numbers, target)] == [t for t in targets if t in reachable]


def test_solver_finds_what_random_expressions_over_six_numbers_make() -> None:
    rng = np.random.default_rng(1)
    solved = 0
    while solved < 10:
        numbers = tuple(rng.integers(1, 100, size=6).tolist())
        expression = parse(random_expression(numbers, rng))
        assert expression is not None
        if expression.value is not None and expression.value.denominator == 1:
            found = parse(solve(numbers, int(expression.value)) or "")
            assert found is not None and found.value == expression.value
            solved += 1


def test_solutions_carry_no_needless_parentheses() -> None:
    assert solve((1, 2, 4), 7, "+") in {"+".join(order).replace("+", " + ") for order in itertools.permutations("124")}
    product = solve((2, 3, 5), 30, "*")
    assert product is not None and "(" not in product


@pytest.mark.parametrize(
    ("numbers", "operators", "message"),
    [
        ((), "+", r"numbers \[\] must be one or more positive integers"),
        ((3, 0), "+", r"numbers \[3, 0\] must be"),
        ((3, 4), "", "operators='' must be some of"),
        ((3, 4), "++", "each once"),
        ((3, 4), "^", r"operators='\^'"),
    ],
)
def test_bad_arguments_are_named(numbers: tuple[int, ...], operators: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        solve(numbers, 5, operators)
    with pytest.raises(ValueError, match=message):
        random_expression(numbers, np.random.default_rng(0), operators)


def test_too_many_numbers_are_named() -> None:
    with pytest.raises(ValueError, match=f"7 numbers are too many.*up to {MOST_NUMBERS}"):
        solve((1, 2, 3, 4, 5, 6, 7), 5)
