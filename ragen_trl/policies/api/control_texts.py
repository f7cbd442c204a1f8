"""Texts that a server may read as control tokens, broken by a character that nobody sees.

Servers like vLLM read ``<|im_end|>`` in a message as the end of the message, so a page could speak in the model's name.
The client does not know the server's tokens; it knows how the common families' tokens look.
"""

import re

BREAK = "\u200b"
"""A zero-width space, put after the first character."""
_CONTROL = re.compile(
    r"<\|[^\s<>|]{1,64}\|?>|<[^\s<>|]{1,64}\|>|<｜[^\s<>｜]{1,64}｜>"  # ChatML, Llama 3, Phi; Gemma 4; DeepSeek
    r"|</?s>|<(?:bos|eos|pad|unk|mask|sop|eop|image|video|audio)>|<(?:start|end)_of_\w{1,64}>"  # Llama 2, Gemma, GLM
    r"|</?tool_(?:call|response|result)s?>|</?tools>"  # Qwen
    r"|<</?SYS>>|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_\w{1,16}|THINK|IMG|gMASK)\]"  # Llama 2, Mistral, GLM
)


def broken(text: str) -> tuple[str, list[str]]:
    """The text of a message with what looks like a control token broken, and what was broken in it."""
    return _CONTROL.sub(lambda found: found[0][0] + BREAK + found[0][1:], text), _CONTROL.findall(text)
