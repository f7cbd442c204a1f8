"""Make the environments that a configuration describes, and the chat that speaks to them."""

from collections.abc import Callable

import gymnasium
from transformers import PreTrainedTokenizerBase

from ragen_envs import AgentTurns
from ragen_trl.chat import Chat
from ragen_trl.config import StarPOConfig


def make_turns(env: str | Callable[[], gymnasium.Env[str, str]], args: StarPOConfig) -> AgentTurns:
    """An environment that takes whole replies.

    Args:
        env: A Gymnasium id (``args.env_kwargs`` are its keyword arguments), or a function that makes one. What is
            not an ``AgentTurns`` already is wrapped in one, with the limits of ``args``.
        args: Turn limits, penalty and reply format.

    Raises:
        gymnasium.error.NameNotFound: If the id is unknown.
        ValueError: If ``env_kwargs`` is given next to a function.
    """
    kwargs = args.env_kwargs if isinstance(args.env_kwargs, dict) else {}
    if isinstance(env, str):
        made = gymnasium.make(env, disable_env_checker=True, **kwargs)
    elif kwargs:
        raise ValueError(f"env_kwargs is {kwargs}, but env is a function; let the function set them")
    else:
        made = env()
    if isinstance(made, AgentTurns):
        return made
    return AgentTurns(
        made,
        max_turns=args.max_turns,
        max_actions_per_turn=args.max_actions_per_turn,
        max_actions=args.max_actions,
        think=args.think,
        format_penalty=args.format_penalty,
    )


def make_chat(tokenizer: PreTrainedTokenizerBase, turns: AgentTurns, args: StarPOConfig) -> Chat:
    """The chat in which a model plays: system prompt and forced reply prefix as ``args`` say.

    Raises:
        ChatTemplateError: If the tokenizer's template is missing or rewrites history.
    """
    return Chat(tokenizer, args.system_prompt, turns.reply_prefix if args.force_reply_prefix else "")
