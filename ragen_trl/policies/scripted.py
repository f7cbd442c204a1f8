"""Policies that follow a script: oracles, random play, demonstrations. No torch here.

The random policy and the oracle of `baseline_policy` play one action per turn, seeing the state after each, with as
many actions in all as the policy that they are compared with.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ragen_envs import AgentTurns, best_action, random_action
from ragen_trl.rollout.interfaces import Policy, Reply, Request, TurnEnv

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat


class ScriptedPolicy(Policy):
    """Answers by a script that may look at the environment.

    Args:
        script: Writes a reply, given the environment and the row's own random generator.
        chat: If given, replies also carry token ids (token-exact demonstrations), without log-probabilities.
    """

    def __init__(self, script: Callable[[TurnEnv, np.random.Generator], str], chat: "Chat | None" = None) -> None:
        self._script, self.chat = script, chat
        self._random: list[np.random.Generator] = []

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`."""
        self._random = [np.random.default_rng(seed) for seed in seeds]

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`, by one call of the script per request."""
        texts = [self._script(request.env, self._random[request.row]) for request in requests]
        if self.chat is None:
            return [Reply(text) for text in texts]
        return [Reply(text, tuple(self.chat.encode_reply(text))) for text in texts]


def baseline_policy(name: str) -> ScriptedPolicy:
    """The policy called ``"random"`` or ``"oracle"``; ``ValueError`` for another name."""
    if name not in ("random", "oracle"):
        raise ValueError(f"policy is {name!r}; pass 'random', 'oracle' or a policy object")

    def script(env: TurnEnv, random: np.random.Generator) -> str:
        assert isinstance(env, AgentTurns)
        action = random_action(env, random) if name == "random" else best_action(env, env.actions_left)
        return env.format_reply([action])

    return ScriptedPolicy(script)


def in_single_actions(turns: AgentTurns) -> None:
    """Let an environment be played in turns of one action, with the same number of actions in all."""
    turns.max_actions = min(turns.max_actions, turns.max_turns * turns.max_actions_per_turn)
    turns.max_turns, turns.max_actions_per_turn = turns.max_actions, 1
