"""What V* of a run depends on besides the start state, put together into the key of the cache."""

import json
from collections.abc import Sequence

from ragen_trl.astar_po_config import AStarPOConfig
from ragen_trl.env_pool import EnvSpec
from ragen_trl.value_cache import ValueKey


def value_key(
    args: AStarPOConfig,
    spec: EnvSpec,
    place: int,
    rewards: Sequence[tuple[str, float]],
    reply_prefix: str,
    chat_template: str,
    reference: str,
) -> ValueKey:
    """The key under which the reference's returns in one environment are stored.

    Args:
        args: How episodes are played and sampled, and ``reward_version``.
        spec: The environment.
        place: Its place among those of the run; tells functions of one name apart.
        rewards: Names and weights of the reward functions, in order.
        reply_prefix: What every reply is forced to begin with.
        chat_template: The template of the tokenizer.
        reference: ``Reference.fingerprint()``.
    """
    penalties = {name: getattr(args, name) for name in ("format_penalty", "cut_penalty", "env_failure_penalty")}
    reward = {"version": args.reward_version, **penalties, "functions": list(rewards)}
    return ValueKey(
        env=spec.label if isinstance(spec.env, str) else f"{spec.label} {place}",
        env_kwargs=dict(spec.kwargs),
        max_turns=args.max_turns,
        max_actions_per_turn=args.max_actions_per_turn,
        max_actions=args.max_actions,
        max_reply_length=args.max_reply_length,
        max_completion_length=args.max_completion_length,
        reward=json.dumps(reward),
        reference=reference,
        temperature=args.temperature,
        top_p=args.top_p,
        top_k=args.top_k,
        system_prompt=args.system_prompt,
        think=args.think,
        reply_prefix=reply_prefix,
        chat_template=chat_template,
        stop_at_answer=args.stop_at_answer,
    )
