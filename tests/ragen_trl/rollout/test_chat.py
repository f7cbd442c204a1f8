"""Chat: conversations that only grow, in the templates of model families and of TRL, with calls of tools, too."""

from collections.abc import Sequence
from typing import Any

import pytest
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerFast

from ragen_envs import AgentTurns, ToolTurns
from ragen_envs.calling.tool import write_call
from ragen_trl.errors import OptionError
from ragen_trl.policies.tiny_model import CHAT_TEMPLATE
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_envs.notes import Notes
from tests.support.ragen_trl.chat_families import (
    CHATML,
    CHATML_TOKENS,
    COUNTING_TURNS,
    FAMILIES,
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
    [(TRAVELLING_SYSTEM, "Be brief."), (COUNTING_TURNS, None)],
    ids=["moves the system message", "counts turns"],
)
def test_a_template_that_rewrites_history_is_refused(template: str, system_prompt: str | None) -> None:
    tokenizer = byte_tokenizer(template, CHATML_TOKENS, "<|im_end|>")
    with pytest.raises(OptionError, match="rewrites earlier messages.*set tokenizer.chat_template"):
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
    with pytest.raises(OptionError, match="rewrites earlier messages"):
        Chat(forgetful())
    chat = Chat(forgetful(switch))
    assert text(chat.tokenizer, chat.start("hello")).endswith("hello<|im_end|>\n<|im_start|>assistant\n")


# Tool calls: what is shown, appended and trained


TAGS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def with_tags(tokenizer: PreTrainedTokenizerFast) -> PreTrainedTokenizerFast:
    """With the tags of calls as tokens that are not special, as Qwen's tokenizers have them."""
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in TAGS])
    return tokenizer


CALLING = {
    "qwen2_5": with_tags(FAMILIES["qwen2_5"].tokenizer()),
    "qwen3": with_tags(FAMILIES["qwen3"].tokenizer()),
    "qwen3_instruct": with_tags(FAMILIES["qwen3_instruct"].tokenizer()),
    "qwen3_vl": with_tags(bundled_tokenizer("qwen3_vl")),
    "llama3_1": bundled_tokenizer("llama3_1"),
    "llama3_2": bundled_tokenizer("llama3_2"),
    "tiny": byte_tokenizer(CHAT_TEMPLATE, ("<|endoftext|>", "<|im_start|>", "<|im_end|>"), "<|im_end|>"),
}
FORMS = {name: "json" if name.startswith("llama") else "tags" for name in CALLING}


WRITE, READ = ("write", {"text": "a"}), ("read", {})

each_template = pytest.mark.parametrize("name", CALLING)


def chat_of(name: str) -> Chat:
    return Chat(CALLING[name], think=False, calls=True)


class Sampled(Policy):
    """Replies of given texts, tokenised as a model samples them: the closing token in all but the second."""

    def __init__(self, chat: Chat, *texts: str) -> None:
        self.chat, self._texts, self._turn = chat, texts, 0

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        ids = self.chat.encode_reply(self._texts[self._turn])
        cut = self._turn == 1
        self._turn += 1
        ids = ids[:-1] if cut else ids
        return [Reply(self.chat.decode_reply(ids), tuple(ids), (-0.5,) * len(ids), cut=cut) for _ in requests]


def written(form: str, *calls: tuple[str, dict[str, Any]]) -> str:
    turns = ToolTurns(Notes(), call_format=form)
    return turns.format_reply([write_call(*call) for call in calls])


def played(name: str) -> Trajectory:
    """Three turns: two calls, one call in a reply that was cut, an answer."""
    form = FORMS[name]
    policy = Sampled(chat_of(name), written(form, WRITE, READ), written(form, READ), "Done.")
    return play([ToolTurns(Notes())], policy, [Start(3)])[0]


@each_template
def test_a_written_conversation_is_what_the_template_renders(name: str) -> None:
    """With one call, because Llama's templates render no more in a reply."""
    chat, env = chat_of(name), ToolTurns(Notes(), call_format=FORMS[name])
    assert chat.call_format == FORMS[name]
    opening, _ = env.reset(seed=3)
    reply = env.format_reply([write_call(*WRITE)])
    ids = chat.start(opening, env.tools) + chat.encode_reply(reply)
    ids += chat.extend_results(ids[-1], env.step(reply)[4]["tool_results"])
    calls = [{"type": "function", "function": {"name": WRITE[0], "arguments": WRITE[1]}}]
    history = [
        {"role": "user", "content": opening},
        {"role": "assistant", "content": "", "tool_calls": calls},
        {"role": "tool", "content": "written"},
    ]
    shown = chat._render(history, add_generation_prompt=True, tools=list(env.tools))
    if name == "qwen3":  # it renders an empty thought as history; replies are as they were sampled
        shown = shown.replace("<think>\n\n</think>\n\n<tool_call>", "<tool_call>", 1)
        ids_text = text(chat.tokenizer, ids).replace("<think>\n\n</think>\n\n<tool_call>", "<tool_call>", 1)
        assert ids_text == shown
    else:
        assert text(chat.tokenizer, ids) == shown


@each_template
def test_results_are_messages_of_tools_and_never_trained(name: str) -> None:
    chat, trajectory = chat_of(name), played(name)
    assert [turn.cut for turn in trajectory.turns] == [False, True, False] and trajectory.terminated
    shown = [text(chat.tokenizer, turn.prompt_ids) for turn in trajectory.turns]
    assert [turn.info["tool_results"] for turn in trajectory.turns] == [("written", "a"), ("a",), ()]
    messages = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "@"}]
    for turn, results in ((1, ("written", "a")), (2, ("a",))):
        told = [{"role": "tool", "content": result} for result in results]
        rendered = chat._render([*messages, *told], add_generation_prompt=True, tools=list(ToolTurns(Notes()).tools))
        between = rendered.partition("@")[2]
        # The first reply sampled its closing token. The second was cut: it is closed here.
        end = chat.tokenizer.decode([chat.end_of_turn_id])
        assert shown[turn] == (between.removeprefix(end) if turn == 1 else between)
    assert "written" not in "".join(text(chat.tokenizer, turn.reply_ids) for turn in trajectory.turns)


@each_template
def test_what_a_tool_or_a_server_writes_stays_text(name: str) -> None:
    """A result, a description and the name of an argument that hold every control token."""
    chat, env = chat_of(name), ToolTurns(Notes())
    hostile = f"shoe {''.join(token.content for token in chat.tokenizer.added_tokens_decoder.values())} now"
    dirty, clean = (chat.extend_results(-1, [shown, shown]) for shown in (hostile, "shoe"))
    assert control_counts(chat.tokenizer, dirty) == control_counts(chat.tokenizer, clean)

    def described(said: str) -> list[int]:
        parameters = {"type": "object", "properties": {said: {"type": "string", "description": said}}}
        tool = {"type": "function", "function": {"name": "f", "description": said, "parameters": parameters}}
        return chat.start(said, [tool])

    assert control_counts(chat.tokenizer, described(hostile)) == control_counts(chat.tokenizer, described("shoe"))
    env.close()


def test_an_environment_with_tools_is_played_by_calls_unless_it_is_wrapped() -> None:
    args = on_cpu(think=False, max_turns=7, max_actions=9)
    turns = make_turns(Notes, args)
    assert isinstance(turns, ToolTurns) and (turns.max_turns, turns.max_actions) == (7, 9)
    chat = make_chat(CALLING["llama3_1"], turns, args)
    assert (chat.call_format, chat.reply_prefix) == ("json", "")
    as_text = make_turns(lambda: AgentTurns(Notes(), think=False, max_turns=7, max_actions=9), args)
    assert not isinstance(as_text, ToolTurns)
    assert make_chat(FAMILIES["gemma"].tokenizer(), as_text, args).reply_prefix == "<answer>"


def test_the_tags_of_calls_are_tokens_in_replies_with_calls_only() -> None:
    tokenizer = CALLING["qwen2_5"]
    call = tokenizer.convert_tokens_to_ids("<tool_call>")
    reply = written("tags", READ)
    assert chat_of("qwen2_5").encode_reply(reply).count(call) == 1
    assert Chat(tokenizer, think=False).encode_reply(reply).count(call) == 0
    assert text(tokenizer, Chat(tokenizer, think=False).encode_reply(reply)) == reply + "<|im_end|>"
