"""Messages to token ids and back, append-only, for any chat template.

A context is never decoded, rewritten and tokenised again (TRL #5224, RAGEN). The template is rendered once around
marker texts; what it puts *between* one reply and the next is cut out, tokenised alone and appended. A template that
changes earlier messages when later ones arrive is refused. For templates that drop past ``<think>`` blocks (Qwen3),
TRL's training version is used, or a switch that keeps them; generation prompts that open or end a thought are made to
fit the reply format by such a switch (``enable_thinking``), or by an empty thought.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from ragen_envs import CALL_FORMATS, END_THINK, THINK, CallFormat
from ragen_trl.errors import OptionError
from ragen_trl.rollout.control_tokens import ControlTokens
from ragen_trl.trajectory import Picture

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]
Tools = Sequence[Mapping[str, Any]]

_FIRST, _NEXT = "\u00abfirst\u00bb", "\u00abnext\u00bb"
_REPLY, _THOUGHT = "\u00abreply\u00bb", "\u00abthought\u00bb"
# Variables of templates, and how they keep past thoughts: Nemotron, LFM2.5, GLM-4.7.
_KEEPS_THOUGHTS = {"truncate_history_thinking": False, "preserve_thinking": True, "clear_thinking": False}
_THINKING_SWITCHES = ("enable_thinking", "thinking")  # Qwen3, Nemotron; DeepSeek-V3.1
_CALL: dict[str, Any] = {"name": "probe_tool", "arguments": {"probe_argument": 1}}
_PARAMETERS = {"type": "object", "properties": {"probe_argument": {"type": "integer"}}, "required": ["probe_argument"]}
_TOOL: dict[str, Any] = {"name": "probe_tool", "description": "A probe.", "parameters": _PARAMETERS}
_TOOLS: Tools = [{"type": "function", "function": _TOOL}]


class Chat:
    """Tokens of a growing conversation.

    Args:
        tokenizer: A tokenizer with a chat template.
        system_prompt: Content of a system message, which may be empty; ``None`` leaves it to the template (Qwen2.5 and
            SmolLM2 add their own).
        reply_prefix: Text forced at the start of every reply, for example ``"<think>"``.
        think: Whether replies begin with a thought; ``None``: unless the prefix says otherwise. If they do not, a
            thought that the generation prompt opens is ended there.
        template_kwargs: Variables of the template, as TRL's ``chat_template_kwargs``.
        calls: Whether replies call tools in the template's own form.
        picture_text: What stands in a message for a picture, in the model's control tokens; ``None`` for a model that
            sees nothing.

    Attributes:
        reply_prefix: The text that each reply begins with and that is not sampled: the forced one, or the ``<think>``
            of a generation prompt that opens the thought itself.
        end_of_turn_id: The token that closes an assistant's message, or ``None`` if the closing text is not one token.

    Raises:
        OptionError: If there is no template, or none that can be used append-only, with tools if there are any.
    """

    def __init__(
        self,
        tokenizer: "PreTrainedTokenizerBase",
        system_prompt: str | None = None,
        reply_prefix: str = "",
        think: bool | None = None,
        template_kwargs: Mapping[str, Any] | None = None,
        calls: bool = False,
        picture_text: Callable[[Picture], str] | None = None,
    ) -> None:
        think = reply_prefix in ("", THINK) if think is None else think
        self.tokenizer = tokenizer
        self._control = ControlTokens(tokenizer, calls)
        hidden = [] if system_prompt is None else [self._control.hide(system_prompt)]
        self._system: list[Message] = [{"role": "system", "content": text} for text in hidden]
        self._variables = dict(template_kwargs or {})
        self._picture_text = picture_text
        self._ends_thought = False
        self._template = self._append_only_template(think)
        self._fit_thinking(think)
        between = self._between("")
        # Some generation prompts open the thinking block themselves (Qwen3.5, DeepSeek-R1); do not open it twice.
        opened = between.rstrip().endswith(THINK)
        self.reply_prefix = reply_prefix or (THINK if opened else "")
        self._prefix_ids = [] if opened and reply_prefix in ("", THINK) else self._control.encode(reply_prefix)
        first = next(iter(self._control.encode(between)), None)
        # Not every template's closing token is one of the tokenizer's named special tokens (Gemma, Phi-3).
        self.end_of_turn_id: int | None = first if first in tokenizer.added_tokens_decoder else None
        if calls:
            _ = self.call_format  # refuses a template without tools

    def start(self, observation: str, tools: Tools = (), pictures: Sequence[Picture] = ()) -> list[int]:
        """Token ids of the first prompt: system message with ``tools``, first user message, forced prefix."""
        shown = json.loads(self._control.hide(json.dumps(tools, ensure_ascii=False)))
        return self._ids(lambda texts: self._opening(texts[0], shown), [observation], pictures) + self._prefix_ids

    def extend(self, last_token: int, observation: str, pictures: Sequence[Picture] = ()) -> list[int]:
        """Token ids to append after a reply: its closing, the next user message, generation prompt, forced prefix.

        If ``last_token`` of the context is the sampled end-of-turn token, it is not appended again. A reply that a
        limit cut gets it here, untrained.
        """
        return self._after(last_token, self._ids(lambda texts: self._between(texts[0]), [observation], pictures))

    def extend_results(self, last_token: int, results: Sequence[str]) -> list[int]:
        """The same after a reply with calls, with a message of the role "tool" for each result."""

        def between(texts: Sequence[str]) -> str:
            told = [{"role": "tool", "content": text} for text in texts]
            exchange = [_user("?"), _assistant(_REPLY), *told]
            return self._render(exchange, add_generation_prompt=True, tools=_TOOLS).partition(_REPLY)[2]

        return self._after(last_token, self._ids(between, results))

    def encode_reply(self, text: str) -> list[int]:
        """Token ids of a written reply, for demonstrations: the text without the forced prefix, then end-of-turn.

        The tags of the reply format become the tokens that a model would sample, if the tokenizer has any. Other
        control tokens in the text (a goal that the oracle repeats) stay text.
        """
        if not text.startswith(self.reply_prefix):
            raise ValueError(f"reply {text!r} does not start with the forced prefix {self.reply_prefix!r}")
        end = [] if self.end_of_turn_id is None else [self.end_of_turn_id]
        written = self._control.hide(text[len(self.reply_prefix) :], is_reply=True)
        return self._control.encode(written) + end

    def decode_reply(self, ids: Sequence[int]) -> str:
        """Text of a sampled reply as the environment reads it: forced prefix, then text, without special tokens."""
        kept = list(ids[:-1]) if ids and ids[-1] == self.end_of_turn_id else list(ids)
        return self.reply_prefix + self._control.decode(kept)

    def stop_ids(self, declared: int | Sequence[int] | None) -> frozenset[int]:
        """Tokens that end a reply: the template's, the tokenizer's, and those that a generation config declares."""
        more = [declared] if isinstance(declared, int) else list(declared or ())
        known = [self.end_of_turn_id, self.tokenizer.eos_token_id, *more]
        return frozenset(token for token in known if token is not None)

    @cached_property
    def call_format(self) -> str:
        """The form of the tool calls that the model has learnt, one of ``ragen_envs.CALL_FORMATS``.

        `OptionError` unless the template shows tools, calls and results, and appends them.
        """
        if _CALL["name"] not in self._opening(_FIRST, _TOOLS):
            raise self._refused_tools("does not show tools")
        if not self._appends(self._template, answer={"role": "tool", "content": _NEXT}, tools=_TOOLS):
            raise self._refused_tools("does not append the results of tools to what was there")
        called = {**_assistant(""), "tool_calls": [{"type": "function", "id": "probe0001", "function": _CALL}]}
        try:
            written = self._render([_user(_FIRST), called], tools=_TOOLS).rpartition(_FIRST)[2]
        except ValueError:
            written = ""
        # From the tag, or else from the first brace: before them stands what begins an assistant's message.
        for form, begin in zip(CALL_FORMATS, ("<tool_call>", "{"), strict=True):
            if (CallFormat().read(begin + written.partition(begin)[2]) or ())[:1] == (json.dumps(_CALL),):
                return form
        raise self._refused_tools(f"writes calls in a form that is not read here, such as {written!r:.200}")

    def _ids(
        self, render: Callable[[Sequence[str]], str], texts: Sequence[str], pictures: Sequence[Picture] = ()
    ) -> list[int]:
        """Token ids of messages with these texts, in which only the template writes control tokens."""
        hidden = [self._control.hide(text) for text in texts]
        if pictures:
            if self._picture_text is None:
                raise OptionError(
                    f"a message has {len(pictures)} pictures, but the policy reads text; take a vision model "
                    "(docs/one_gpu.md), or observation='text'"
                )
            hidden[0] = "".join(map(self._picture_text, pictures)) + hidden[0]
        return self._control.encode(render(hidden))

    def _after(self, last_token: int, ids: list[int]) -> list[int]:
        closed = self.end_of_turn_id is not None and last_token == self.end_of_turn_id
        return ids[closed:] + self._prefix_ids

    def _opening(self, observation: str, tools: Any = None) -> str:
        return self._render([_user(observation)], add_generation_prompt=True, tools=tools or None)

    def _between(self, observation: str) -> str:
        exchange = [_user("?"), _assistant(_REPLY), _user(observation)]
        return self._render(exchange, add_generation_prompt=True).partition(_REPLY)[2]

    def _render(
        self,
        messages: Sequence[Message],
        template: str | None = None,
        add_generation_prompt: bool = False,
        tools: Any = None,
    ) -> str:
        try:
            text = str(
                self.tokenizer.apply_chat_template(
                    [*self._system, *messages],
                    chat_template=template or self._template,
                    add_generation_prompt=add_generation_prompt,
                    tokenize=False,
                    tools=tools,
                    **self._variables,
                )
            )
        except TemplateError as error:
            remedy = "leave system_prompt unset if it has no system role" if self._system else "use another template"
            raise OptionError(f"{self._name} refuses a conversation ({error}); {remedy}") from error
        return f"{text.rstrip()}\n\n{END_THINK}\n\n" if self._ends_thought and add_generation_prompt else text

    @property
    def _name(self) -> str:
        name = self.tokenizer.name_or_path
        return f"the chat template of {repr(name) if name else f'a {type(self.tokenizer).__name__} in memory'}"

    def _append_only_template(self, think: bool) -> str:
        own = self.tokenizer.chat_template
        own = own["default"] if isinstance(own, dict) else own
        if own is None:
            raise OptionError(
                f"{self._name} is missing; set tokenizer.chat_template, or take an instruction-tuned model"
            )
        if self._appends(own) and self._appends(own, _THOUGHT):
            return own
        from trl.chat_template_utils import get_training_chat_template  # loads torch, which rollouts do not need

        training = None
        with suppress(ValueError):  # a template that TRL does not know
            training = get_training_chat_template(self.tokenizer)
        # TRL trains with it, also where it drops thoughts (GLM-4-MoE). Replies are not taken from it.
        if training is not None and self._appends(training):
            return training
        given = dict(self._variables)
        for name, keeps in _KEEPS_THOUGHTS.items():
            self._variables = {name: keeps, **given}
            if name in own and self._appends(own) and self._appends(own, _THOUGHT):
                return own
        self._variables = given
        if not think and self._appends(own):
            return own
        raise OptionError(
            f"{self._name} rewrites earlier messages when later ones arrive, or leaves out their text, so tokens could "
            "not be trained exactly as they were sampled; set tokenizer.chat_template to a version for text that only "
            "appends (that keeps past <think> blocks and the system message where they are)"
        )

    def _fit_thinking(self, think: bool) -> None:
        wrong = END_THINK if think else THINK
        given = dict(self._variables)
        for name in (None, *_THINKING_SWITCHES):
            self._variables = given if name is None else {name: think, **given}
            if not self._between(_NEXT).rstrip().endswith(wrong):
                return
        self._variables, self._ends_thought = given, not think

    def _appends(self, template: str, thought: str = "", answer: Message | None = None, tools: Any = None) -> bool:
        """Whether an ``answer`` to a reply leaves earlier messages unchanged, and is written alike at every turn.

        The spacing inside a reply with a thought does not matter, because replies are never rendered. The template only
        has to keep both parts of the reply in their place, or to drop the thought at once (DeepSeek-V3).
        """
        parts = [thought, _REPLY] if thought else [_REPLY]
        reply = f"{THINK}{thought}{END_THINK}{_REPLY}" if thought else _REPLY
        history, exchange = [_user(_FIRST)], [_assistant(reply), answer or _user(_NEXT)]
        opening = self._render(history, template, True, tools)
        before = self._render([*history, exchange[0]], template, False, tools)
        after = self._render([*history, *exchange], template, True, tools)
        later = self._render([*history, *exchange, *exchange], template, True, tools)
        if _FIRST not in opening or _REPLY not in before or after.count(_NEXT) != 1:
            return False
        return (
            [part in after for part in parts] == [part in before for part in parts]
            and after.startswith(before[: before.index(_REPLY) + len(_REPLY)])
            # The generation prompt may open a thinking block that a rendered history writes differently. Everything
            # before it must agree.
            and after.startswith(opening[: opening.index(_FIRST) + len(_FIRST)])
            and after.rpartition(_REPLY)[2] == later.rpartition(_REPLY)[2]
        )

    def _refused_tools(self, what: str) -> OptionError:
        return OptionError(
            f"{self._name} {what}; use a model whose template has tools in the form of Qwen2.5, Qwen3 or Llama 3.1, or "
            "let it play in text: env=lambda: AgentTurns(gymnasium.make(...))"
        )


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}
