"""Thoughts at the slot machines: only about names, and about what the names of RAGEN's pairs stand for."""

import re
from typing import Any

import numpy as np
import pytest

from ragen_envs import Bandit, explain
from ragen_envs.bandit import TEST_PAIRS, TRAIN_PAIRS
from ragen_envs.bandit.thoughts import DARING as DARING_NAMES
from ragen_envs.bandit.thoughts import STEADY as STEADY_NAMES
from tests.support.ragen_envs.thoughts import Thought, check_claims, check_form, thoughts

ONCE = {"max_turns": 1, "max_actions_per_turn": 1, "max_actions": 1}
# RAGEN-2's pairs and the phoenix with the dragon: the safe name, then the risky one.
SAFE = {pair[0] for pair in (*TRAIN_PAIRS, *TEST_PAIRS, ("Phoenix", "Dragon"))}
RISKY = {pair[1] for pair in (*TRAIN_PAIRS, *TEST_PAIRS, ("Phoenix", "Dragon"))} | {"Gambler"}
STEADY = r"sounds steady|stands for safety|suggests a calm and regular life|symbolises security|is steady"
BOLD = r"sounds daring|stands for risk|suggests a bold venture|symbolises chance and ambition|is bold"
NAME = r"\ban? ((?:[a-z]+ ){1,3}?)"


def spelled(words: str) -> str:
    """The name of an arm, from its words in a sentence."""
    return "".join(word.capitalize() for word in words.split())


def check(thought: Thought) -> list[str]:
    arms, chosen = thought.env.actions, thought.actions[0]
    check_form(thought.text, chosen)
    assert not re.search(r"\d|pays?\b|better|best|high|low\b|point", thought.text), thought.text
    claims: dict[str, Any] = {
        rf"{NAME}(?:{STEADY})": lambda m: spelled(m[1]) in SAFE and spelled(m[1]) in arms,
        rf"{NAME}(?:{BOLD})": lambda m: spelled(m[1]) in RISKY and spelled(m[1]) in arms,
        r"(?:what is steady:|the safe name,|play it safe and|Steady it is:)": lambda m: chosen in SAFE,
        r"(?:what is bold:|the risky name,|take the risk and|Boldness it is:)": lambda m: chosen in RISKY,
        r"(?:The machines are|between) (\w+(?:, \w+)*) and (\w+)": lambda m: (
            sorted([*m[1].split(", "), m[2]]) == sorted(arms)
        ),
    }
    neutral = (r"I (?:choose|pull|pick|prefer|take|can choose)", r"My choice is", rf"{chosen}(?=\.$)", r"\bI\b", r"and")
    return check_claims(thought.text, claims, (*neutral, r"\bchoose\b", r", and I know only their names"))


def test_the_lists_of_names_agree_with_ragens_pairs_and_exclude_each_other() -> None:
    assert SAFE <= STEADY_NAMES and RISKY <= DARING_NAMES
    assert not STEADY_NAMES & DARING_NAMES


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("ragen/Bandit-v0", {}),
        ("ragen/BanditRev-v0", {}),
        ("ragen/Bandit-v0", {"names": "ragen2-train"}),
        ("ragen/Bandit-v0", {"names": "ragen2-test"}),
        ("ragen/Bandit-v0", {"names": "ragen1-train"}),
        ("ragen/Bandit-v0", {"names": [["Saver", "Clerk", "Gambler"], ["Foo", "Bar"]]}),
    ],
)
@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_every_sentence_is_true_of_the_names(env_id: str, kwargs: dict[str, Any], noise: float) -> None:
    texts = set()
    for thought in thoughts(env_id, 150, noise, limits=ONCE, **kwargs):
        assert check(thought)
        texts.add(thought.text)
    assert len(texts) > 30
    lengths = sorted(len(text.split()) for text in texts)
    assert lengths[-1] >= 2 * lengths[0]


def test_a_thought_does_not_know_which_arm_pays() -> None:
    """The same names and the same choice get the same words, whichever is the better arm."""
    texts = []
    for low, high in (("Phoenix", "Dragon"), ("Dragon", "Phoenix")):
        env = Bandit(low, high)  # before a reset the arms are sorted, so that their order is the same
        texts.append([explain(env, [arm], np.random.default_rng(seed)) for seed in range(40) for arm in env.actions])
    assert texts[0] == texts[1]


def test_an_unknown_name_beside_two_known_ones() -> None:
    bandit = Bandit(names=[["Clerk", "Nurse", "Gambler"]])
    bandit.reset(seed=0)
    for seed in range(200):
        thought = explain(bandit, ["Gambler"], np.random.default_rng(seed))
        assert thought.endswith("Gambler.") and 1 <= thought.count(". ") + 1 <= 2
