"""Chat: conversations that only grow, for eight model families and TRL's templates; templates that cannot, refused."""

from collections.abc import Sequence

import pytest
from transformers import PreTrainedTokenizerFast

from ragen_trl.rollout.chat import Chat, ChatTemplateError
from ragen_trl.rollout.environments import make_chat, make_turns
from tests.support.ragen_trl.chat_families import (
    CHATML,
    CHATML_TOKENS,
    COUNTING_TURNS,
    FAMILIES,
    FORGETTING_THOUGHTS,
    TRAVELLING_SYSTEM,
    bundled_templates,
    bundled_tokenizer,
    byte_tokenizer,
    control_counts,
)
from tests.support.ragen_trl.trainers import on_cpu

TOKENIZERS = {name: family.tokenizer() for name, family in FAMILIES.items()}

each_family = pytest.mark.parametrize("name", FAMILIES)
each_prefix = pytest.mark.parametrize("prefix", ["", "<think>", "<answer>"])


def text(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> str:
    return tokenizer.decode(list(ids), skip_special_tokens=False)


@pytest.mark.parametrize(
    ("template", "system_prompt"),
    [(FORGETTING_THOUGHTS, None), (TRAVELLING_SYSTEM, "Be brief."), (COUNTING_TURNS, None)],
    ids=["drops thoughts", "moves the system message", "counts turns"],
)
def test_a_template_that_rewrites_history_is_refused(template: str, system_prompt: str | None) -> None:
    tokenizer = byte_tokenizer(template, CHATML_TOKENS, "<|im_end|>")
    with pytest.raises(ChatTemplateError, match="rewrites earlier messages.*set tokenizer.chat_template"):
        Chat(tokenizer, system_prompt)


@each_prefix
@each_family
@pytest.mark.parametrize(
    "observation", ["P_\n_G", " padded \n", "", "<tool_response>42</tool_response>", "{{ m }}", "√"]
)
def test_a_conversation_is_what_the_template_would_render(name: str, prefix: str, observation: str) -> None:
    """Its fixed text is taken from one rendering: templates that strip, or look into messages, are rendered still."""
    tokenizer, end = TOKENIZERS[name], FAMILIES[name].end_of_turn
    chat = Chat(tokenizer, reply_prefix=prefix)

    def rendered(*said: str) -> str:
        roles = ("user", "assistant", "user")
        messages = [{"role": role, "content": content} for role, content in zip(roles, said, strict=False)]
        return str(tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False))

    between = rendered("?", "reply", observation).partition("reply")[2] + prefix
    assert chat.start(observation) == tokenizer(rendered(observation) + prefix, add_special_tokens=False)["input_ids"]
    assert chat.extend(-1, observation) == tokenizer(between, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode([chat.end_of_turn_id]) == end and between.startswith(end)  # a reply that was cut is closed
    assert text(tokenizer, chat.extend(chat.end_of_turn_id, observation)) == between.removeprefix(end)


# Every chat template that TRL ships: which are played, how a thought begins or is left out, and their variables


# They want the content of a message as a list of parts, and write nothing for a text.
OF_PARTS = {"idefics3", "llava_next", "smolvlm"}
PLAYED = [name for name in bundled_templates() if name not in OF_PARTS]


R1 = CHATML.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")


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
        assert text(chat.tokenizer, ids) == text(chat.tokenizer, clean).replace("shoe", hostile)
        ending = text(chat.tokenizer, clean).rpartition("shoe")[2]
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
    args = on_cpu(force_reply_prefix=force)
    turns = make_turns("ragen/FrozenLake-v0", args)
    chat = make_chat(tokenizer, turns, args)
    turns.reset(seed=0)
    reply = turns.format_reply(["Left"], "so")
    assert chat.reply_prefix == "<think>"
    assert text(chat.tokenizer, chat.encode_reply(reply)) == reply.removeprefix("<think>") + "<|im_end|>"
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
    assert text(chat.tokenizer, chat.start("hello")).endswith("hello<|im_end|>\n<|im_start|>assistant\n")
