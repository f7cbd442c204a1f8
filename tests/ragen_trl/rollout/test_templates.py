"""Every chat template that TRL ships: which are played, how a thought begins or is left out, and their variables."""

from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.rollout.chat import Chat, ChatTemplateError
from ragen_trl.rollout.env_specs import env_specs
from ragen_trl.rollout.environments import load_play_options, make_chat, make_turns, save_play_options
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
# Regression: these were refused, because they drop thoughts; the text around replies only grows.
REFUSED_BEFORE = {
    *("deepseekv3", "glm4moe", "lfm2_2_5", "lfm2_2_5_v2", "lfm2_2_5_vl"),
    *("nemotron_3_nano", "nemotron_3_super", "nemotron_3_ultra", "nemotron_3_5_lightning"),
}
# How the generation prompt ends: as the template is, with a thought, and without one.
THINKING = {
    "deepseek_r1_distill": ("<think>\n", "<think>\n\n</think>\n\n"),
    "deepseekv3": ("<think>\n", "<think>\n\n</think>\n\n"),
    "nemotron_3_nano": ("<think>\n", "<think></think>"),
    "nemotron_3_super": ("<think>\n", "<think></think>"),
    "nemotron_3_ultra": ("<think>\n", "<think></think>"),
    "nemotron_3_5_lightning": ("<think>\n", "<think></think>"),
    "qwen3_5_think": ("<think>\n", "<think>\n\n</think>\n\n"),
    "qwen3_5_nothink": ("<think>\n", "<think>\n\n</think>\n\n"),
    "qwen3_6": ("<think>\n", "<think>\n\n</think>\n\n"),
    "qwen3_8": ("<think>\n", "<think>\n\n</think>\n\n"),
}
R1 = CHATML.replace("<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>\n{% endif %}")
CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


def text(chat: Chat, ids: list[int]) -> str:
    return str(chat.tokenizer.decode(ids, skip_special_tokens=False))


def test_trl_ships_the_templates_that_are_listed_here() -> None:
    """A new TRL may bring others: look at them, and list them in docs/rollouts.md."""
    assert len(PLAYED) == 38
    assert REFUSED_BEFORE <= set(PLAYED)
    assert set(THINKING) <= set(PLAYED)


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


@pytest.mark.parametrize("name", sorted(THINKING))
def test_a_generation_prompt_opens_a_thought_if_replies_have_one(name: str) -> None:
    """Regression: without thoughts the answer stood inside <think>, so that the whole reply was a thought."""
    opened, ended = THINKING[name]
    for force in ("<think>", ""):
        chat = Chat(bundled_tokenizer(name), reply_prefix=force, think=True)
        assert text(chat, chat.extend(-1, "shoe")).rpartition("shoe")[2].endswith(opened)
    for force in ("<answer>", ""):
        chat = Chat(bundled_tokenizer(name), reply_prefix=force, think=False)
        assert text(chat, chat.start("shoe")).rpartition("shoe")[2].endswith(ended + force)


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


def test_the_prefix_says_whether_replies_think_unless_it_is_said() -> None:
    tokenizer = byte_tokenizer(R1, CHATML_TOKENS, "<|im_end|>")
    endings = [text(chat, chat.start("")) for chat in (Chat(tokenizer, reply_prefix=tag) for tag in ("", "<answer>"))]
    assert endings[0].endswith("assistant\n<think>\n")
    assert endings[1].endswith("assistant\n<think>\n\n</think>\n\n<answer>")


@pytest.mark.parametrize("name", sorted(OF_PARTS))
def test_a_template_that_wants_parts_says_so(name: str) -> None:
    """Regression: it was said to rewrite earlier messages."""
    with pytest.raises(ChatTemplateError, match="leaves out the text of a message.*list of parts"):
        Chat(bundled_tokenizer(name))


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


def test_dropped_thoughts_do_not_matter_where_there_are_none() -> None:
    chat = Chat(forgetful(), reply_prefix="<answer>")
    assert text(chat, chat.extend(-1, "hello")) == FAMILIES["chatml"].between.format("hello") + "<answer>"


def test_variables_of_the_template_are_passed_to_it() -> None:
    """Regression: chat_template_kwargs was refused, and Qwen3 could not be asked to leave its thoughts out."""
    tokenizer = FAMILIES["qwen3"].tokenizer()
    chat = Chat(tokenizer, template_kwargs={"enable_thinking": False})
    expected = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello"}], add_generation_prompt=True, enable_thinking=False, tokenize=False
    )
    assert expected.endswith("<think>\n\n</think>\n\n")
    assert text(chat, chat.start("hello")) == expected
    assert text(chat, chat.extend(-1, "hello")).endswith("<think>\n\n</think>\n\n")


def test_a_given_variable_is_not_overruled() -> None:
    chat = Chat(bundled_tokenizer("qwen3_6"), reply_prefix="<answer>", template_kwargs={"enable_thinking": True})
    assert text(chat, chat.start("hello")).endswith("assistant\n<think>\n\n</think>\n\n<answer>")


@pytest.mark.parametrize("variable", ["enable_thinkin", "tokenize", "chat_template"])
def test_a_variable_that_does_nothing_is_refused(variable: str) -> None:
    with pytest.raises(ChatTemplateError, match=f"chat_template_kwargs has '{variable}', but .* has no such variable"):
        Chat(FAMILIES["qwen3"].tokenizer(), template_kwargs={variable: False})


def test_variables_come_from_the_options_and_stay_with_a_saved_model(tmp_path: Path) -> None:
    """Rollouts, demonstrations and evaluations make their chat by `make_chat`, from the options in play.json."""
    args = StarPOConfig(chat_template_kwargs='{"enable_thinking": false}', use_cpu=True, report_to="none")
    turns = make_turns("ragen/FrozenLake-v0", args)
    chat = make_chat(FAMILIES["qwen3"].tokenizer(), turns, args)
    turns.close()
    assert text(chat, chat.start("")).endswith("assistant\n<think>\n\n</think>\n\n<think>")
    save_play_options(tmp_path, env_specs("ragen/FrozenLake-v0", args), args)
    assert load_play_options(str(tmp_path))["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize("given", ["enable_thinking", "[1]", 3])
def test_variables_that_are_no_json_object_are_refused(given: object) -> None:
    with pytest.raises(ValueError, match="chat_template_kwargs is .*; write it as JSON, for example"):
        StarPOConfig(chat_template_kwargs=given, use_cpu=True, report_to="none")
