"""Thoughts about numbers: every equation is calculated again, and every sentence is compared with the task."""

import re
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from ragen_envs import AgentTurns, Countdown, explain
from ragen_envs.countdown.arithmetic import parse
from ragen_envs.countdown.thoughts import operations
from tests.support.ragen_envs.thoughts import Thought, check_claims, check_form, thoughts

ONCE = {"max_turns": 1, "max_actions_per_turn": 1, "max_actions": 1}
NUMBER = r"\(?(-?\d+(?:/\d+)?)\)?"
NEUTRAL = (r"So I answer", r"so the answer is", r"I (?:write|try)", r"(?:but )?let me try", r"and", r"as in")


def solves(thought: Thought) -> bool:
    """Whether the answer is right, found by Python's own arithmetic on fractions."""
    exact = re.sub(r"\d+", lambda number: f"Fraction({number[0]})", thought.actions[0])
    numbers = sorted(map(int, re.findall(r"\d+", thought.actions[0])))
    try:
        value = eval(exact, {"Fraction": Fraction})  # of a test's own expressions
    except ZeroDivisionError:
        return False
    return bool(value == thought.env.target) and numbers == sorted(thought.env.numbers)


def check(thought: Thought) -> list[str]:
    answer, env = thought.actions[0], thought.env
    check_form(thought.text, answer)
    text = thought.text.removesuffix(f" {answer}.") + "."
    right = solves(thought)

    def holds(match: re.Match[str]) -> bool:
        left, symbol, other, value = Fraction(match[1]), match[2], Fraction(match[3]), Fraction(match[4])
        done = {"+": left + other, "-": left - other, "*": left * other}
        return (done[symbol] if symbol in done else left / other) == value

    claims: dict[str, Any] = {
        rf"{NUMBER} ([-+*/]) {NUMBER} = (-?\d+(?:/\d+)?)": holds,
        r"From ([\d, ]+ and \d+) I want (\d+)": lambda m: (
            list(map(int, re.findall(r"\d+", m[1]))) == list(env.numbers) and int(m[2]) == env.target
        ),
        r"(?:The target is|I need) (\d+)": lambda m: int(m[1]) == env.target,
        r"This uses every number once|That is the target": lambda _: right,
    }
    assert right == (re.search(r"\btry\b", text) is None), thought.text
    return check_claims(text, claims, NEUTRAL)


@pytest.mark.parametrize(("kwargs", "noise"), [({}, 0.0), ({"operators": "+-*/"}, 0.0), ({"operators": "+-*/"}, 0.6)])
def test_every_sentence_is_true_of_the_task(kwargs: dict[str, Any], noise: float) -> None:
    said, texts = Counter[str](), set()
    for thought in thoughts("ragen/Countdown-v0", 200, noise, limits=ONCE, **kwargs):
        said.update(set(check(thought)))
        texts.add(thought.text)
        shown = re.findall(r"= (-?[\d/]+)", thought.text)
        assert not solves(thought) or shown[-1] == str(thought.env.target)
    assert len(texts) > 190 and len(said) == 4
    lengths = sorted(map(len, texts))
    assert lengths[-1] >= 2 * lengths[0]


def carried_out(text: str) -> list[str]:
    expression = parse(text)
    assert expression is not None
    return operations(expression)


def test_operations_by_hand() -> None:
    assert carried_out("8 - 3 - 2") == ["8 - 3 = 5", "5 - 2 = 3"]
    assert carried_out("-(1 - 4) / 2 * 6") == ["1 - 4 = -3", "3 / 2 = 3/2", "(3/2) * 6 = 9"]
    assert carried_out("2 - 5 + 7") == ["2 - 5 = -3", "(-3) + 7 = 4"]


def test_what_is_no_expression_is_only_tried() -> None:
    turns = AgentTurns(Countdown())
    turns.reset(seed=0)
    for answer in ("nonsense", "1 / 0", "5"):
        assert re.search(rf"[tT]ry {answer}\.$|I try {answer}\.$", explain(turns, [answer]))
