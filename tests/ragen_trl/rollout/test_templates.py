"""Every chat template that TRL ships: which are played, how a thought begins or is left out, and their variables."""

import pytest
from transformers import PreTrainedTokenizerFast

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.chat import Chat, ChatTemplateError
from ragen_trl.rollout.environments import make_chat, make_turns
from tests.support.ragen_trl.chat_families import (
    CHATML,
    FAMILIES,
    bundled_templates,
    bundled_tokenizer,
    byte_tokenizer,
    control_counts,
)

# They want the content of a message as a list of parts, and write nothing for a text.
OF_PARTS = {"idefics3", "llava_next", "smolvlm"}
PLAYED = [name for name in bundled_templates() if name not in OF_PARTS]


R1 = CHATML.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def text(chat: Chat, ids: list[int]) -> str:
    return str(chat.tokenizer.decode(ids, skip_special_tokens=False))


@pytest.mark.parametrize("think", [True, False])
@pytest.mark.parametrize("name", PLAYED)
def test_a_template_of_trl_is_played(name: str, think: bool) -> None:
    """Its own text stands around messages, whatever they hold, and replies begin after one beginning of a thought."""
    tokenizer = bundled_tokenizer(name)
    chat = Chat(tokenizer, reply_prefix="<think>" if think else "<answer>", think=think)
    hostile = f"shoe {''.join(token.content for token in tokenizer.added_tokens_decoder.values())} now"
    for write in (chat.start, lambda shown: chat.extend(-1, shown)):
        ids, clean = write(hostile), write("shoe")
        assert control_counts(tokenizer, ids) == control_counts(tokenizer, clean)
        assert text(chat, ids) == text(chat, clean).replace("shoe", hostile)
        ending = text(chat, clean).rpartition("shoe")[2]
        if think:
            assert ending.count("<think>") == ending.count("</think>") + 1
        else:
            assert ending.count("<think>") == ending.count("</think>")
            assert ending.endswith("<answer>")
    assert chat.end_of_turn_id is not None


@pytest.mark.parametrize("force", [True, False])
def test_a_thought_that_the_prompt_opened_belongs_to_the_reply(force: bool) -> None:
    """Regression: unforced, no reply could be read, because <think> stood in the prompt and not in the reply."""
    tokenizer = byte_tokenizer(R1, CHATML_TOKENS, "<|im_end|>")
    args = StarPOConfig(force_reply_prefix=force, use_cpu=True, report_to="none")
    turns = make_turns("ragen/FrozenLake-v0", args)
    chat = make_chat(tokenizer, turns, args)
    turns.reset(seed=0)
    reply = turns.format_reply(["Left"], "so")
    assert chat.reply_prefix == "<think>"
    assert text(chat, chat.encode_reply(reply)) == reply.removeprefix("<think>") + "<|im_end|>"
    sampled = tokenizer("so</think><answer>Left</answer><|im_end|>")["input_ids"]
    assert turns.step(chat.decode_reply(sampled))[4]["format_is_valid"]
    turns.close()


def forgetful(switch: str = "") -> PreTrainedTokenizerFast:
    """A template that TRL does not know and that drops past thoughts, unless the switch is set."""
    condition = f"loop.last or {switch}" if switch else "loop.last"
    whole, short = "{{ message['content'] }}", "{{ message['content'].split('</think>')[-1] }}"
    template = CHATML.replace(whole, f"{{% if {condition} %}}{whole}{{% else %}}{short}{{% endif %}}")
    return byte_tokenizer(template, CHATML_TOKENS, "<|im_end|>")


@pytest.mark.parametrize(
    "switch", ["preserve_thinking", "not truncate_history_thinking|default(true)", "not clear_thinking|default(true)"]
)
def test_a_switch_that_keeps_thoughts_is_used(switch: str) -> None:
    with pytest.raises(ChatTemplateError, match="rewrites earlier messages"):
        Chat(forgetful())
    chat = Chat(forgetful(switch))
    assert text(chat, chat.start("hello")) == FAMILIES["chatml"].opening.format("hello")
