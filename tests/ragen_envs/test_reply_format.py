"""The reply grammar: what it reads, and that reading inverts writing."""

import numpy as np
import pytest

from ragen_envs.reply_format import SEPARATOR, TAGS, ReplyFormat


@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        ("<think>go</think><answer>Left || Up</answer>", ("Left", "Up")),
        ("well <think>go</think>\n \t<answer> Left||Up\n</answer> bye <answer>Down</answer>", ("Left", "Up")),
        ("<think>a\nb</think><answer>\nLeft\n</answer>", ("Left",)),
        ("<think></think><answer>Left || </answer>", ("Left",)),
        ("<think>x</think><answer></answer>", ()),
        ("<think>x</think><answer> || || </answer>", ()),
        ("<think>a</think> so <answer>Up</answer><think>b</think><answer>Left</answer>", ("Left",)),
        ("<think>a<think>b</think><answer>Up</answer>", ("Up",)),
        ("<answer>Left</answer>", None),
        ("<think>x</think>", None),
        ("<think>x</think><answer>Left", None),
        ("<think>x<answer>Left</answer></think>", None),
        ("</think><answer>Left</answer><think>", None),
        ("", None),
    ],
)
def test_grammar_with_thought(reply: str, actions: tuple[str, ...] | None) -> None:
    assert ReplyFormat(think=True).read(reply) == actions


@pytest.mark.parametrize(
    ("reply", "actions"),
    [
        ("<answer>Left || Up</answer>", ("Left", "Up")),
        ("I think <answer>Left</answer> or <answer>Up</answer>", ("Left",)),
        ("<think>x</think><answer>Up</answer>", ("Up",)),
        ("Left", None),
        ("<answer>Left", None),
        ("</answer><answer>", None),
    ],
)
def test_grammar_without_thought(reply: str, actions: tuple[str, ...] | None) -> None:
    assert ReplyFormat(think=False).read(reply) == actions


@pytest.mark.parametrize("think", [True, False])
def test_reading_inverts_writing(think: bool) -> None:
    form = ReplyFormat(think)
    rng = np.random.default_rng(0)
    alphabet = [*"|,;->ab <>/\n\té√", "<answer", "think>"]
    written = 0
    for _ in range(700):
        actions = ["".join(rng.choice(alphabet, rng.integers(1, 7))) for _ in range(rng.integers(1, 4))]
        thought = "".join(rng.choice(alphabet, rng.integers(0, 9)))
        carried = all(a == a.strip() and SEPARATOR not in a and not any(tag in a for tag in TAGS) for a in actions)
        if not carried or any(tag in thought for tag in TAGS):
            with pytest.raises(ValueError):
                form.write(actions, thought)
            continue
        written += 1
        reply = form.write(actions, thought)
        assert reply.startswith(form.prefix)
        assert form.read(reply) == tuple(actions)
        assert form.read(f"Sure! {reply} Done.") == tuple(actions)
    assert written > 70
