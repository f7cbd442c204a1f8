"""Chat: conversations that only grow, for the templates of eight model families; templates that cannot, refused.

Replies are random token ids, as a model in training samples them: nothing may depend on their text.
"""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from ragen_trl.rollout.chat import Chat, ChatTemplateError
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.chat_families import (
    COUNTING_TURNS,
    FAMILIES,
    FORGETTING_THOUGHTS,
    TRAVELLING_SYSTEM,
    Family,
    byte_tokenizer,
)

TOKENIZERS = {name: family.tokenizer() for name, family in FAMILIES.items()}
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
OBSERVATIONS = ("P_\n_G", "_P\n_G", "__\nPG", "√")

each_family = pytest.mark.parametrize("name", FAMILIES)
each_prefix = pytest.mark.parametrize("prefix", ["", "<think>", "<answer>"])


class Corridor:
    """Shows one observation after another and never complains."""

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[str, dict[str, object]]:
        self.turn = 0
        return OBSERVATIONS[0], {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, object]]:
        self.turn += 1
        return OBSERVATIONS[self.turn], 0.0, self.turn == 3, False, {}


class Dice(Policy):
    """A policy of random token ids that closes every second turn itself and is cut off in the others."""

    def __init__(self, chat: Chat, seed: int = 0) -> None:
        self.chat = chat
        self.random = np.random.default_rng(seed)
        self.turn = 0

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        assert self.chat.end_of_turn_id is not None
        ordinary = sorted(set(range(len(self.chat.tokenizer))) - {self.chat.end_of_turn_id})
        ids = self.random.choice(ordinary, size=4).tolist()
        closed = self.turn % 2 == 0
        self.turn += 1
        ids = [*ids, self.chat.end_of_turn_id] if closed else ids
        return [Reply(self.chat.decode_reply(ids), tuple(ids), (-0.5,) * len(ids), cut=not closed) for _ in requests]


def converse(chat: Chat, seed: int = 0) -> Trajectory:
    """A conversation of three turns: closed by the policy, cut by a limit, closed."""
    return play([Corridor()], Dice(chat, seed), [Start(0)])[0]


def text(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=False)


@each_prefix
@each_family
def test_the_environment_writes_the_templates_own_text(name: str, prefix: str) -> None:
    family, tokenizer = FAMILIES[name], TOKENIZERS[name]
    turns = converse(Chat(tokenizer, reply_prefix=prefix)).turns
    between = family.between.format
    assert text(tokenizer, turns[0].prompt_ids) == family.opening.format(OBSERVATIONS[0]) + prefix
    # The first reply sampled its closing token: it is not written again. The second was cut: it is closed here.
    assert text(tokenizer, turns[1].prompt_ids) == between(OBSERVATIONS[1]).removeprefix(family.end_of_turn) + prefix
    assert text(tokenizer, turns[2].prompt_ids) == between(OBSERVATIONS[2]) + prefix


@each_prefix
@each_family
def test_the_mask_covers_exactly_the_sampled_tokens(name: str, prefix: str) -> None:
    trajectory = converse(Chat(TOKENIZERS[name], reply_prefix=prefix))
    expected: list[int] = []
    for turn, sampled in zip(trajectory.turns, (5, 4, 5), strict=True):
        expected += [0] * len(turn.prompt_ids) + [1] * sampled
    assert list(trajectory.action_mask) == expected
    sampled_ids = [i for i, bit in zip(trajectory.token_ids, trajectory.action_mask, strict=True) if bit]
    assert sampled_ids == [i for turn in trajectory.turns for i in turn.reply_ids]
    assert [turn.cut for turn in trajectory.turns] == [False, True, False]


@each_family
def test_the_closing_token_is_trained_where_it_was_sampled_and_only_there(name: str) -> None:
    chat = Chat(TOKENIZERS[name])
    trajectory = converse(chat)
    end = chat.end_of_turn_id
    assert end == TOKENIZERS[name].convert_tokens_to_ids(FAMILIES[name].end_of_turn)
    assert [turn.reply_ids.count(end) for turn in trajectory.turns] == [1, 0, 1]
    # The cut reply is closed by the environment, once. (A user's own message ends with that token as well.)
    per_message = FAMILIES[name].between.count(FAMILIES[name].end_of_turn) - 1
    assert [turn.prompt_ids.count(end) for turn in trajectory.turns[1:]] == [per_message, per_message + 1]


@each_family
def test_a_written_conversation_is_what_the_template_renders(name: str) -> None:
    tokenizer = TOKENIZERS[name]
    chat = Chat(tokenizer)
    ids = chat.start("one") + chat.encode_reply("two")
    ids += chat.extend(ids[-1], "three")
    messages = [{"role": role, "content": word} for role, word in (("user", "one"), ("assistant", "two"))]
    rendered = tokenizer.apply_chat_template(
        [*messages, {"role": "user", "content": "three"}], add_generation_prompt=True, return_dict=False
    )
    assert ids == rendered


@pytest.mark.parametrize(
    ("template", "system_prompt"),
    [(FORGETTING_THOUGHTS, None), (TRAVELLING_SYSTEM, "Be brief."), (COUNTING_TURNS, None)],
    ids=["drops thoughts", "moves the system message", "counts turns"],
)
def test_a_template_that_rewrites_history_is_refused(template: str, system_prompt: str | None) -> None:
    tokenizer = byte_tokenizer(template, CHATML_TOKENS, "<|im_end|>")
    with pytest.raises(ChatTemplateError, match="rewrites earlier messages.*set tokenizer.chat_template"):
        Chat(tokenizer, system_prompt)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(FAMILIES)))
def test_a_context_only_ever_grows(data: st.DataObject, name: str) -> None:
    """Whatever ids are sampled and shown, earlier ids stay and later ones decode to what the template writes."""
    family: Family = FAMILIES[name]
    tokenizer = TOKENIZERS[name]
    chat = Chat(tokenizer)
    context = chat.start("hello")
    for _ in range(2):
        context += data.draw(st.lists(st.integers(0, len(tokenizer) - 1), min_size=1, max_size=6))
        shown = data.draw(st.text("PG_O\n√ ab", min_size=1, max_size=8).map(str.strip))
        added = chat.extend(context[-1], shown)
        closed = context[-1] == chat.end_of_turn_id
        expected = family.between.format(shown)
        assert text(tokenizer, added) == (expected.removeprefix(family.end_of_turn) if closed else expected)
        context += added


@each_family
@pytest.mark.parametrize("observation", ["P_\n_G", " padded \n", "", "<tool_response>42</tool_response>", "{{ m }}"])
def test_a_turn_is_what_the_template_would_render(name: str, observation: str) -> None:
    """Its fixed text is taken from one rendering: templates that strip, or look into messages, are rendered still."""
    chat = Chat(TOKENIZERS[name])
    conversation = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "reply"},
        {"role": "user", "content": observation},
    ]
    rendered = chat.tokenizer.apply_chat_template(
        conversation, chat_template=chat._template, add_generation_prompt=True, tokenize=False
    )
    expected = chat.tokenizer(rendered.partition("reply")[2], add_special_tokens=False)["input_ids"]
    assert chat.extend(-1, observation) == expected
