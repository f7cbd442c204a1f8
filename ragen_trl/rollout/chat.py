"""Messages to token ids and back, append-only, for any chat template.

A context is never decoded, rewritten and tokenised again (TRL #5224, RAGEN). The template is rendered once around
marker texts. The text that it puts *between* one assistant reply and the next is cut out, tokenised alone and appended
to the ids that are already there. Some templates change earlier messages when later ones arrive (Qwen3 drops past
``<think>`` blocks). For these, TRL's training version of the template is used if there is one; otherwise the template
is refused.

Only the template writes control tokens: what stands in a message is text (`control_tokens`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jinja2 import TemplateError

from ragen_trl.errors import UserError
from ragen_trl.rollout.control_tokens import ControlTokens

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = dict[str, str]

_FIRST, _NEXT = "\u00abfirst\u00bb", "\u00abnext\u00bb"
_REPLY, _THOUGHT, _ANSWER = "\u00abreply\u00bb", "\u00abthought\u00bb", "\u00abanswer\u00bb"


class ChatTemplateError(UserError, ValueError):
    """The tokenizer's chat template is missing or cannot be used append-only."""


class Chat:
    """Tokens of a growing conversation.

    Args:
        tokenizer: A tokenizer with a chat template.
        system_prompt: Content of a system message; ``None`` leaves it to the template (Qwen2.5 adds its own).
        reply_prefix: Text forced at the start of every reply, for example ``"<think>"``; ``""`` forces nothing.

    Attributes:
        end_of_turn_id: The token that closes an assistant's message in this template, or ``None`` if the closing
            text is not one token.

    Raises:
        ChatTemplateError: If there is no template, if the template refuses the system message, or if it changes earlier
            messages when later ones arrive.
    """

    def __init__(
        self, tokenizer: "PreTrainedTokenizerBase", system_prompt: str | None = None, reply_prefix: str = ""
    ) -> None:
        self.tokenizer = tokenizer
        self.reply_prefix = reply_prefix
        self._control = ControlTokens(tokenizer)
        content = self._control.hide(system_prompt or "")
        self._system: list[Message] = [{"role": "system", "content": content}] if content else []
        self._template = self._append_only_template()
        self._around = self._fixed_text()
        between = self._between("")
        # Control tokens that the template writes: in the first prompt, and from one reply to the next.
        self._in_opening = self._control.count(self._control.encode(self._opening(_FIRST)))
        self._in_between = self._control.count(self._control.encode(self._between(_NEXT)))
        # Some generation prompts open the thinking block themselves (Qwen3.5, DeepSeek-R1); do not open it twice.
        opened = between.rstrip().endswith(reply_prefix)
        self._prefix_ids = [] if opened else self._encode(reply_prefix)
        first = next(iter(self._encode(between)), None)
        # Not every template's closing token is one of the tokenizer's named special tokens (Gemma, Phi-3).
        self.end_of_turn_id: int | None = first if first in tokenizer.added_tokens_decoder else None

    def start(self, observation: str) -> list[int]:
        """Token ids of the first prompt: system message, first user message, generation prompt, forced prefix."""
        text = self._opening(self._control.hide(observation))
        return self._control.encode(text, self._in_opening) + self._prefix_ids

    def extend(self, last_token: int, observation: str) -> list[int]:
        """Token ids to append after a reply: its closing, the next user message, generation prompt, forced prefix.

        Args:
            last_token: Last token in the context. If it is the template's end-of-turn token, which the model sampled,
                that token is not appended again. A reply that a limit cut gets it here, and it is not trained.
            observation: Content of the user message.
        """
        ids = self._control.encode(self._between(self._control.hide(observation)), self._in_between)
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
        written = self._control.hide(text[len(self.reply_prefix) :], is_reply=True)
        return self._control.encode(written, 0) + end

    def decode_reply(self, ids: Sequence[int]) -> str:
        """Text of a sampled reply as the environment reads it: forced prefix, then the text without special tokens."""
        kept = list(ids[:-1]) if ids and ids[-1] == self.end_of_turn_id else list(ids)
        return self.reply_prefix + str(self.tokenizer.decode(kept, skip_special_tokens=True))

    def stop_ids(self, declared: int | Sequence[int] | None) -> frozenset[int]:
        """Tokens that end a reply: the template's, the tokenizer's, and those that a generation config declares."""
        more = [declared] if isinstance(declared, int) else list(declared or ())
        known = [self.end_of_turn_id, self.tokenizer.eos_token_id, *more]
        return frozenset(token for token in known if token is not None)

    def _opening(self, observation: str) -> str:
        """What the template writes up to the first reply."""
        return self._render([{"role": "user", "content": observation}], add_generation_prompt=True)

    def _between(self, observation: str) -> str:
        """What the template writes after one assistant reply and before the next."""
        # A template that reads a user's message looks for a tag at its start (Qwen3: <tool_response>).
        if self._around is None or observation.startswith("<"):
            return self._rendered_between(observation)
        return observation.join(self._around)

    def _fixed_text(self) -> tuple[str, str] | None:
        """The text before and after an observation, so that not every turn must be rendered; None if it varies.

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

    def _append_only_template(self) -> str:
        template = self.tokenizer.chat_template
        if template is None:
            raise ChatTemplateError(
                f"the tokenizer {self.tokenizer.name_or_path!r} has no chat template; set tokenizer.chat_template, "
                "or use the instruction-tuned version of the model"
            )
        template = template["default"] if isinstance(template, dict) else template
        if self._is_append_only(template):
            return str(template)
        from trl.chat_template_utils import get_training_chat_template  # loads torch, which rollouts do not need

        try:
            training = get_training_chat_template(self.tokenizer)
        except ValueError:  # a template that TRL does not know
            training = None
        if training is not None and self._is_append_only(training):
            return str(training)
        raise ChatTemplateError(
            f"the chat template of {self.tokenizer.name_or_path!r} rewrites earlier messages when later ones arrive, "
            "so tokens could not be trained exactly as they were sampled; set tokenizer.chat_template to a version "
            "that only appends (that keeps past <think> blocks and the system message where they are)"
        )

    def _is_append_only(self, template: str) -> bool:
        """Whether later messages leave the rendering of earlier ones unchanged, at every turn.

        The spacing inside a reply with a thought does not matter, because replies are never rendered. The template only
        has to keep all parts of the reply in their place.
        """
        history: list[Message] = [{"role": "user", "content": _FIRST}]
        opening = self._render(history, template=template, add_generation_prompt=True)
        for reply, parts in ((_REPLY, [_REPLY]), (f"<think>{_THOUGHT}</think>{_ANSWER}", [_THOUGHT, _ANSWER])):
            exchange: list[Message] = [{"role": "assistant", "content": reply}, {"role": "user", "content": _NEXT}]
            before = self._render([*history, exchange[0]], template=template)
            after = self._render([*history, *exchange], template=template, add_generation_prompt=True)
            later = self._render([*history, *exchange, *exchange], template=template, add_generation_prompt=True)
            if any(part not in before for part in parts):
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

    def _render(self, messages: list[Message], template: str | None = None, add_generation_prompt: bool = False) -> str:
        try:
            return str(
                self.tokenizer.apply_chat_template(
                    [*self._system, *messages],
                    chat_template=template or self._template,
                    add_generation_prompt=add_generation_prompt,
                    tokenize=False,
                )
            )
        except TemplateError as error:
            remedy = "leave system_prompt unset if it has no system role" if self._system else "use another template"
            raise ChatTemplateError(
                f"the chat template of {self.tokenizer.name_or_path!r} refuses a conversation ({error}); {remedy}"
            ) from error

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])
