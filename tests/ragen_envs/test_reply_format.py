"""The reply grammar: what it reads, and that reading inverts writing."""

import numpy as np
import pytest

from ragen_envs.reply_format import SEPARATOR, TAGS, ReplyFormat


@pytest.mark.parametrize(
    ("think", "reply", "actions"),
    [
        (True, "<think>go</think><answer>Left || Up</answer>", ("Left", "Up")),
        (True, "well <think>go</think>\n \t<answer> Left||Up\n</answer> bye <answer>Down</answer>", ("Left", "Up")),
        (True, "<think>a\nb</think><answer>\nLeft\n</answer>", ("Left",)),
        (True, "<think></think><answer>Left || </answer>", ("Left",)),
        (True, "<think>x</think><answer></answer>", ()),
        (True, "<think>x</think><answer> || || </answer>", ()),
        (True, "<think>a</think> so <answer>Up</answer><think>b</think><answer>Left</answer>", ("Left",)),
        (True, "<think>a<think>b</think><answer>Up</answer>", ("Up",)),
        (True, "<answer>Left</answer>", None),
        (True, "<think>x</think>", None),
        (True, "<think>x</think><answer>Left", None),
        (True, "<think>x<answer>Left</answer></think>", None),
        (True, "</think><answer>Left</answer><think>", None),
        (True, "", None),
        (False, "<answer>Left || Up</answer>", ("Left", "Up")),
        (False, "I think <answer>Left</answer> or <answer>Up</answer>", ("Left",)),
        (False, "<think>x</think><answer>Up</answer>", ("Up",)),
        (False, "Left", None),
        (False, "<answer>Left", None),
        (False, "</answer><answer>", None),
    ],
)
def test_grammar(think: bool, reply: str, actions: tuple[str, ...] | None) -> None:
    assert ReplyFormat(think).read(reply) == actions


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
