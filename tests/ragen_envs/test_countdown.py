"""Countdown: expressions and their values, rewards by hand, tasks that can be solved, and thoughts calculated again."""

import ast
import operator
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from ragen_envs import Countdown, best_action
from ragen_envs.countdown.arithmetic import MAX_LENGTH, Expression, parse, random_expression
from tests.support.ragen_envs.timing import assert_ratio


@pytest.mark.parametrize(
    ("text", "canonical", "numbers", "value"),
    [
        ("2+3*4", "2 + 3 * 4", (2, 3, 4), 14),
        ("(2+3)*4", "(2 + 3) * 4", (2, 3, 4), 20),
        ("10-(4-3)", "10 - (4 - 3)", (10, 4, 3), 9),
        ("1/3 + 1/6", "1 / 3 + 1 / 6", (1, 3, 1, 6), Fraction(1, 2)),
        ("8/(3-8/3)", "8 / (3 - 8 / 3)", (8, 3, 8, 3), 24),
        ("-3*-4", "-3 * -4", (3, 4), 12),
        ("-(2+3)*4", "-(2 + 3) * 4", (2, 3, 4), -20),
        ("((5))", "((5))", (5,), 5),
        ("007 + 1", "7 + 1", (7, 1), 8),
        (" \n3\t×4 ÷ 2−1\n", "3 * 4 / 2 - 1", (3, 4, 2, 1), 5),
        ("3 + 4 = -99", "3 + 4", (3, 4), 7),  # what it claims does not count
    ],
)
def test_expressions_worked_by_hand(text: str, canonical: str, numbers: tuple[int, ...], value: Fraction) -> None:
    assert parse(text) == Expression(canonical, numbers, Fraction(value))
    assert parse(canonical) == parse(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "+", "-", "()", "(3", "3)", ")3(", "3 +", "* 3", "+3", "3 4", "(3)(4)", "3 + + 4", "3 -* 4"),
        *("3.5", "1e3", "3 ** 2", "7 // 2", "7 % 2", "1,000", "0x10", "3_0", "three", "x = 3", "3 | 4", "²", "٣", "３"),
        *("3 + 4 =", "3 + 4 = 7 = 7", "3 + 4 = seven", "= 7", "7 = 3 + 4", "3 + 4 == 7", "3 + 4 = 7.0", "3 + 4; 1"),
        *("__import__('os')", "<answer>3 + 4</answer>", "\x00", "\ud800", "日本語"),
    ],
)
def test_what_is_no_expression(text: str) -> None:
    assert parse(text) is None


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
    for _ in range(8_000):
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
    assert min(outcomes[kind] for kind in ("refused", "undefined", "read")) > 40, outcomes


def test_random_expressions_are_uniform_over_trees_and_orders() -> None:
    # With minus alone the 2 trees over 3! orders are 12 different texts.
    rng = np.random.default_rng(0)
    counts = Counter(random_expression((1, 2, 3), rng, "-") for _ in range(12_000))
    assert len(counts) == 12
    assert "1 - (2 - 3)" in counts and "3 - 2 - 1" in counts
    assert all(850 < count < 1150 for count in counts.values())  # 1000 expected, 5 standard errors


@pytest.mark.parametrize(
    ("answer", "value", "verdict", "reward", "uses_the_numbers"),
    [
        ("44 + 19 + 35", "98", "Correct.", 1.0, True),
        ("-(-44 - 19) + 35", "98", "Correct.", 1.0, True),
        ("44 + 19 - 35", "28", "The target is 98.", 0.1, True),
        ("44 / (19 - 19) + 35", "undefined", "Use each of the numbers exactly once.", 0.0, False),
        ("44 + 54", "98", "Use each of the numbers exactly once.", 0.0, False),
        ("44 + 19", "63", "Use each of the numbers exactly once.", 0.0, False),
        ("44 + 19 + 35 + 35 - 35", "98", "Use each of the numbers exactly once.", 0.0, False),
    ],
)
def test_grades_worked_by_hand(answer: str, value: str, verdict: str, reward: float, uses_the_numbers: bool) -> None:
    env = Countdown()
    env.reset(seed=0)
    env.numbers, env.target = (44, 19, 35), 98
    info = {"success": reward == 1.0, "action_is_valid": True, "action_is_effective": True}
    info |= {"value": value, "uses_the_numbers": uses_the_numbers}
    assert env.step(answer.replace(" ", "")) == (f"{answer} = {value}\n{verdict}", reward, True, False, info)


@pytest.mark.parametrize(
    ("counts", "operators"), [((3, 4), "+-"), ((3, 4), "+-*/"), ((2,), "/"), ((5, 6), "*-")], ids=str
)
def test_tasks_stay_in_range_and_have_a_solution(counts: tuple[int, ...], operators: str) -> None:
    env = Countdown(counts=counts, operators=operators)
    for seed in range(40):
        observation, _ = env.reset(seed=seed)
        assert observation in env.observation_space
        assert len(env.numbers) in counts
        assert all(1 <= number <= 99 for number in env.numbers)
        assert 10 <= env.target <= 99
        answer = best_action(env, 1)
        assert answer in env.action_space
        assert set(answer) & set("+-*/") <= set(operators)
        observation, reward, _, _, info = env.step(answer)
        assert observation in env.observation_space
        assert (reward, info["success"]) == (1.0, True)
