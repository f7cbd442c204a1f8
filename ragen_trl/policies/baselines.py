"""The random policy and the oracle as policies of a rollout, in their own rhythm: one action a turn.

They see the state after every action, with as many actions in all as the policy that they are compared with. Left out:
what they choose, which is ``ragen_envs``'s.
"""

import numpy as np

from ragen_envs import AgentTurns, best_action, random_action
from ragen_trl.policies.transformers import ScriptedPolicy
from ragen_trl.rollout.interfaces import TurnEnv


def baseline_policy(name: str) -> ScriptedPolicy:
    """The policy called ``"random"`` or ``"oracle"``.

    Raises:
        ValueError: If it has another name.
    """
    scripts = {"random": _random_reply, "oracle": _oracle_reply}
    if name not in scripts:
        raise ValueError(f"policy is {name!r}; pass 'random', 'oracle' or a policy object")
    return ScriptedPolicy(scripts[name])


def in_single_actions(turns: AgentTurns) -> None:
    """Let an environment be played in turns of one action, with the same budget of actions."""
    turns.max_actions = min(turns.max_actions, turns.max_turns * turns.max_actions_per_turn)
    turns.max_turns, turns.max_actions_per_turn = turns.max_actions, 1


def _random_reply(env: TurnEnv, random: np.random.Generator) -> str:
    assert isinstance(env, AgentTurns)
    return env.format_reply([random_action(env, random)])


def _oracle_reply(env: TurnEnv, random: np.random.Generator) -> str:
    assert isinstance(env, AgentTurns)
    return env.format_reply([best_action(env, env.actions_left)])
