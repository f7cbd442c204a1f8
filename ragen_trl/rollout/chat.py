"""Messages to token ids and back, append-only, for any chat template.

A context is never decoded, rewritten and tokenised again (TRL #5224, RAGEN). The template is rendered once around
marker texts; what it puts *between* one reply and the next is cut out, tokenised alone and appended. A template that
changes earlier messages when later ones arrive is refused. For templates that drop past ``<think>`` blocks (Qwen3),
TRL's training version is used, or a switch that keeps them; generation prompts that open or end a thought are made to
fit the reply format by such a switch (``enable_thinking``), or by an empty thought.
"""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

from ragen_trl.errors import UserError
from ragen_trl.rollout.control_tokens import END_THINK, THINK, ControlTokens
from ragen_trl.rollout.tool_messages import ToolMessages, Tools
from ragen_trl.trajectory import Picture

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, Any]

_FIRST, _NEXT = "\u00abfirst\u00bb", "\u00abnext\u00bb"
_REPLY, _THOUGHT, _ANSWER = "\u00abreply\u00bb", "\u00abthought\u00bb", "\u00abanswer\u00bb"
# Variables of templates, and how they keep past thoughts: Nemotron, LFM2.5, GLM-4.7.
_KEEPS_THOUGHTS = {"truncate_history_thinking": False, "preserve_thinking": True, "clear_thinking": False}
_THINKING_SWITCHES = ("enable_thinking", "thinking")  # Qwen3, Nemotron; DeepSeek-V3.1


class ChatTemplateError(UserError, ValueError):
    """The tokenizer's chat template is missing, cannot be used append-only, or does not read a variable it is given."""


class PictureError(UserError, ValueError):
    """A picture was shown to a policy that reads only text."""


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
        calls: Whether replies call tools in the template's own form (`tool_messages`).
        picture_text: What stands in a message for a picture, in the model's control tokens; ``None`` for a model that
            sees nothing.

    Attributes:
        reply_prefix: The text that each reply begins with and that is not sampled: the forced one, or the ``<think>``
            of a generation prompt that opens the thought itself.
        end_of_turn_id: The token that closes an assistant's message, or ``None`` if the closing text is not one token.

    Raises:
        ChatTemplateError: If there is no template, if it refuses the system message, changes earlier messages when
            later ones arrive or does not read one of ``template_kwargs``, or if replies call tools and it cannot show
            them.
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
        self._control = ControlTokens(tokenizer)
        self._system: list[Message] = []
        if system_prompt is not None:
            self._system = [{"role": "system", "content": self._control.hide(system_prompt)}]
        self._variables = dict(template_kwargs or {})
        self._picture_text = picture_text
        self._ends_thought = False
        own = self._own_template()
        self._check_variables(own)
        self._template = self._append_only_template(own, think)
        self._fit_thinking(think)
        self._around = self._fixed_text()
        between = self._between("")
        # Control tokens that the template writes: in the first prompt, and from one reply to the next.
        self._in_opening = self._control.count(self._control.encode(self._opening(_FIRST)))
        self._in_between = self._control.count(self._control.encode(self._between(_NEXT)))
        # Some generation prompts open the thinking block themselves (Qwen3.5, DeepSeek-R1); do not open it twice.
        opened = between.rstrip().endswith(THINK)
        self.reply_prefix = reply_prefix or (THINK if opened else "")
        self._prefix_ids = [] if opened and reply_prefix in ("", THINK) else self._encode(reply_prefix)
        first = next(iter(self._encode(between)), None)
        # Not every template's closing token is one of the tokenizer's named special tokens (Gemma, Phi-3).
        self.end_of_turn_id: int | None = first if first in tokenizer.added_tokens_decoder else None
        self._calls = calls
        self._tool_messages = self._for_tools() if calls else None

    @property
    def call_format(self) -> str:
        """The form of the template's tool calls, one of ``ragen_envs.CALL_FORMATS``."""
        return self._tools.call_format

    def start(self, observation: str, tools: Tools = (), pictures: Sequence[Picture] = ()) -> list[int]:
        """Token ids of the first prompt: system message with ``tools``, first user message, forced prefix."""
        if tools:
            return self._tools.opening(observation, tools) + self._prefix_ids
        seen = self._seen(pictures)
        text = self._opening(seen + self._control.hide(observation))
        return self._control.encode(text, self._in_opening + self._tokens_of(seen)) + self._prefix_ids

    def extend(self, last_token: int, observation: str, pictures: Sequence[Picture] = ()) -> list[int]:
        """Token ids to append after a reply: its closing, the next user message, generation prompt, forced prefix.

        If ``last_token`` of the context is the sampled end-of-turn token, it is not appended again. A reply that a
        limit cut gets it here, untrained.
        """
        seen = self._seen(pictures)
        text = self._between(seen + self._control.hide(observation))
        return self._after(last_token, self._control.encode(text, self._in_between + self._tokens_of(seen)))

    def extend_results(self, last_token: int, results: Sequence[str]) -> list[int]:
        """The same after a reply with calls, with a message of the role "tool" for each result."""
        return self._after(last_token, self._tools.between(results))

    def _after(self, last_token: int, ids: list[int]) -> list[int]:
        if self.end_of_turn_id is not None and last_token == self.end_of_turn_id:
            ids = ids[1:]
        return ids + self._prefix_ids

    def encode_reply(self, text: str) -> list[int]:
        """Token ids of a written reply, for demonstrations: the text without the forced prefix, then end-of-turn.

        The tags of the reply format become the tokens that a model would sample, if the tokenizer has any. Other
        control tokens in the text (a goal that the oracle repeats) stay text.

        Raises:
            ValueError: If ``text`` does not start with the forced prefix.
        """
        if not text.startswith(self.reply_prefix):
            raise ValueError(f"reply {text!r} does not start with the forced prefix {self.reply_prefix!r}")
        end = [] if self.end_of_turn_id is None else [self.end_of_turn_id]
        written = self._control.hide(text[len(self.reply_prefix) :], is_reply=True, has_calls=self._calls)
        return self._control.encode(written, 0) + end

    def decode_reply(self, ids: Sequence[int]) -> str:
        """Text of a sampled reply as the environment reads it: forced prefix, then text, without special tokens."""
        kept = list(ids[:-1]) if ids and ids[-1] == self.end_of_turn_id else list(ids)
        return self.reply_prefix + self._control.decode(kept, self._calls)

    def stop_ids(self, declared: int | Sequence[int] | None) -> frozenset[int]:
        """Tokens that end a reply: the template's, the tokenizer's, and those that a generation config declares."""
        more = [declared] if isinstance(declared, int) else list(declared or ())
        known = [self.end_of_turn_id, self.tokenizer.eos_token_id, *more]
        return frozenset(token for token in known if token is not None)

    def _seen(self, pictures: Sequence[Picture]) -> str:
        if pictures and self._picture_text is None:
            raise PictureError(
                f"a message has {len(pictures)} pictures, but the policy reads text; take a vision model "
                "(docs/pictures.md), or observation='text'"
            )
        return "".join(map(self._picture_text, pictures)) if self._picture_text is not None else ""

    def _tokens_of(self, seen: str) -> int:
        return self._control.count(self._control.encode(seen)) if seen else 0

    @property
    def _tools(self) -> ToolMessages:
        """Made when a chat without calls first needs it, in a run with several kinds of environments."""
        if self._tool_messages is None:
            self._tool_messages = self._for_tools()
        return self._tool_messages

    def _for_tools(self) -> ToolMessages:
        def refuse(what: str) -> ChatTemplateError:
            return ChatTemplateError(
                f"the chat template of {self._tokenizer_name} {what}; use a model whose template has tools in the form "
                "of Qwen2.5, Qwen3 or Llama 3.1, or let it play in text: env=lambda: AgentTurns(gymnasium.make(...))"
            )

        return ToolMessages(self._render, self._control, refuse)

    @property
    def _tokenizer_name(self) -> str:
        name = self.tokenizer.name_or_path
        return repr(name) if name else f"a {type(self.tokenizer).__name__} in memory"

    def _opening(self, observation: str) -> str:
        return self._render([{"role": "user", "content": observation}], add_generation_prompt=True)

    def _between(self, observation: str) -> str:
        # A template that reads a user's message looks for a tag at its start (Qwen3: <tool_response>).
        if self._around is None or observation.startswith("<"):
            return self._rendered_between(observation)
        return observation.join(self._around)

    def _fixed_text(self) -> tuple[str, str] | None:
        """The text before and after an observation, so not every turn must be rendered; None if it varies.

        The probes detect a template that strips or changes the observation; such a template is rendered every time.
        """
        head, marker, tail = self._rendered_between(_NEXT).rpartition(_NEXT)
        probes = ("", "a", f"\n {_NEXT} \n", "P_\n_G\n")
        if not marker or any(self._rendered_between(probe) != head + probe + tail for probe in probes):
            return None
        return head, tail

    def _rendered_between(self, observation: str) -> str:
        text = self._render(
            [
                {"role": "user", "content": "?"},
                {"role": "assistant", "content": _REPLY},
                {"role": "user", "content": observation},
            ],
            add_generation_prompt=True,
        )
        return text[text.index(_REPLY) + len(_REPLY) :]

    def _own_template(self) -> str:
        template = self.tokenizer.chat_template
        if template is None:
            raise ChatTemplateError(
                f"the tokenizer {self.tokenizer.name_or_path!r} has no chat template; set tokenizer.chat_template, "
                "or use the instruction-tuned version of the model"
            )
        return str(template["default"] if isinstance(template, dict) else template)

    def _check_variables(self, template: str) -> None:
        arguments = inspect.signature(self.tokenizer.apply_chat_template).parameters
        for name in self._variables:
            if name in arguments or not re.search(rf"\b{re.escape(name)}\b", template):
                raise ChatTemplateError(
                    f"chat_template_kwargs has {name!r}, but the chat template of {self._tokenizer_name} has "
                    "no such variable; take it out, or look for its right name in tokenizer.chat_template"
                )

    def _append_only_template(self, own: str, think: bool) -> str:
        if self._is_append_only(own):
            return own
        training = self._training_template()
        # TRL trains with it, also where it drops thoughts (GLM-4-MoE). Replies are not taken from it.
        if training is not None and self._is_append_only(training, with_thoughts=False):
            return training
        given = dict(self._variables)
        for name, keeps in _KEEPS_THOUGHTS.items():
            self._variables = {name: keeps, **given}
            if name in own and self._is_append_only(own):
                return own
        self._variables = given
        if not think and self._is_append_only(own, with_thoughts=False):
            return own
        raise ChatTemplateError(
            f"the chat template of {self._tokenizer_name} rewrites earlier messages when later ones arrive, "
            "so tokens could not be trained exactly as they were sampled; set tokenizer.chat_template to a version "
            "that only appends (that keeps past <think> blocks and the system message where they are)"
        )

    def _training_template(self) -> str | None:
        from trl.chat_template_utils import get_training_chat_template  # loads torch, which rollouts do not need

        try:
            return get_training_chat_template(self.tokenizer)
        except ValueError:  # a template that TRL does not know
            return None

    def _fit_thinking(self, think: bool) -> None:
        wrong = END_THINK if think else THINK
        given = dict(self._variables)
        for name in (None, *_THINKING_SWITCHES):
            self._variables = given if name is None else {name: think, **given}
            if not self._rendered_between(_NEXT).rstrip().endswith(wrong):
                return
        self._variables, self._ends_thought = given, not think

    def _is_append_only(self, template: str, with_thoughts: bool = True) -> bool:
        """Whether later messages leave the rendering of earlier ones unchanged, past thoughts included if asked.

        The spacing inside a reply with a thought does not matter, because replies are never rendered. The template only
        has to keep all parts of the reply in their place, or to drop the thought at once (DeepSeek-V3).
        """
        history: list[Message] = [{"role": "user", "content": _FIRST}]
        opening = self._render(history, template=template, add_generation_prompt=True)
        if _FIRST not in opening:
            raise ChatTemplateError(
                f"the chat template of {self._tokenizer_name} leaves out the text of a message; templates of "
                "models that see may want a list of parts instead: set tokenizer.chat_template to one for text"
            )
        replies = [(_REPLY, [_REPLY]), (f"{THINK}{_THOUGHT}{END_THINK}{_ANSWER}", [_THOUGHT, _ANSWER])]
        for reply, parts in replies if with_thoughts else replies[:1]:
            exchange: list[Message] = [{"role": "assistant", "content": reply}, {"role": "user", "content": _NEXT}]
            before = self._render([*history, exchange[0]], template=template)
            after = self._render([*history, *exchange], template=template, add_generation_prompt=True)
            later = self._render([*history, *exchange, *exchange], template=template, add_generation_prompt=True)
            if parts[-1] not in before:
                return False
            if [part in after for part in parts] != [part in before for part in parts]:
                return False
            if not after.startswith(before[: before.index(parts[-1]) + len(parts[-1])]):
                return False
            # The generation prompt may open a thinking block that a rendered history writes differently. Everything
            # before it must agree.
            if not after.startswith(opening[: opening.index(_FIRST) + len(_FIRST)]):
                return False
            if after.rpartition(parts[-1])[2] != later.rpartition(parts[-1])[2]:
                return False
        return True

    def _render(
        self,
        messages: list[dict[str, Any]],
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
            return f"{text.rstrip()}\n\n{END_THINK}\n\n" if self._ends_thought and add_generation_prompt else text
        except TemplateError as error:
            remedy = "leave system_prompt unset if it has no system role" if self._system else "use another template"
            raise ChatTemplateError(
                f"the chat template of {self._tokenizer_name} refuses a conversation ({error}); {remedy}"
            ) from error

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
