"""TextFromDiscrete on Gymnasium's own toys: every message and reward below was worked out by hand from their rules."""

import copy
import pickle

import gymnasium
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.wrappers import TransformAction

from ragen_envs import AgentTurns
from tests.support.ragen_envs.toys import CLIFF, answer, hand, reached, toy, won

CLIFF_ID, BLACKJACK_ID = "test/Cliff-v0", "test/Blackjack-v0"
ENTRY = "ragen_envs:TextFromDiscrete"
WALK = {"env": "CliffWalking-v1", "actions": CLIFF, "instruction": "Walk.", "success": reached}
DEAL = {"env": "Blackjack-v1", "actions": ("stick", "hit"), "instruction": "Win.", "success": won, "describe": hand}
gymnasium.register(CLIFF_ID, ENTRY, kwargs=WALK)
gymnasium.register(BLACKJACK_ID, ENTRY, kwargs=DEAL)


def test_walking_along_the_cliff() -> None:
    env = AgentTurns(toy("CliffWalking-v1", CLIFF, instruction="Walk from x to T."), max_actions=20, max_turns=9)
    first, _ = env.reset(seed=0)
    row = "o  o  o  o  o  o  o  o  o  o  o  o\n"
    assert first == (
        "Walk from x to T.\n"
        "Actions: up, right, down, left\n"
        "Limits: actions per turn 5, actions in all 20, turns 9\n"
        "Reply format: <think>your thoughts</think><answer>up || right</answer>\n"
        "\n"
        f"Turn 1 of 9\nState:\n{row * 3}x  C  C  C  C  C  C  C  C  C  C  T\nActions left: 20"
    )
    # Right of the start is the cliff: -100, and back to the start. Then up, and the wall on the left.
    message, reward, _, _, info = env.step(answer("right", "Up", "left", "fly"))
    assert reward == -100 - 1 - 1 - 0.1
    assert (info["actions"], info["invalid_actions"]) == (("right", "up", "left"), ("fly",))
    assert (info["action_rewards"], info["success"]) == ((-100.0, -1.0, -1.0), False)
    assert message.splitlines()[:3] == [
        "Turn 2 of 9",
        "Unknown action ignored. Use: up, right, down, left",
        "Reward: -102",
    ]
    assert message.splitlines()[4:8] == [row.strip()] * 2 + ["x" + row.strip()[1:], "o" + "  C" * 10 + "  T"]
    for _ in range(2):
        env.step(answer(*["right"] * 5))
    message, reward, terminated, truncated, info = env.step(answer("right", "down", "down"))
    assert (reward, terminated, truncated, info["success"]) == (-2.0, True, False, True)
    assert info["surplus_actions"] == ("down",)
    assert message.splitlines()[-2:] == ["o" + "  C" * 10 + "  x", "Actions left: 5"]


def test_a_time_limit_truncates_for_good() -> None:
    env = toy(gymnasium.make("CliffWalking-v1", render_mode="ansi", max_episode_steps=3), CLIFF)
    env.reset(seed=0)
    assert [env.step(name)[3] for name in ("up", "jump", "up", "up")] == [False, False, False, True]
    final = env.step("up")
    assert final[1:4] == (0.0, False, True) and not final[4]["action_is_valid"]
    turns = AgentTurns(env)
    turns.reset(seed=0)
    assert turns.step(answer(*["up"] * 5))[-1]["limit"] == "env"
    assert env.reset(seed=0)[1]["success"] is False and not env.step("up")[3]


def test_the_first_name_is_the_first_number_of_the_space() -> None:
    cliff = TransformAction(gymnasium.make("CliffWalking-v1"), lambda number: number - 3, Discrete(4, start=3))
    env = toy(cliff, CLIFF, describe=str)
    assert env.reset(seed=0)[0] == "36"  # row 3 of 12 places
    assert [env.step(name)[:2] for name in ("up", "down", "right")] == [("24", -1), ("36", -1), ("36", -100)]


@pytest.mark.parametrize("env_id", [CLIFF_ID, BLACKJACK_ID])
def test_copies_pickles_and_specs_play_on_alike(env_id: str) -> None:
    env = AgentTurns(gymnasium.make(env_id), max_turns=7)
    env.reset(seed=4)
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    assert env.spec is not None
    rebuilt = gymnasium.make(env.spec)
    rebuilt.reset(seed=4)
    action = "up" if env_id == CLIFF_ID else "hit"
    seen = env.step(answer(action))
    for twin in [*twins, rebuilt]:
        assert data_equivalence(twin.step(answer(action)), seen, exact=True)
        assert data_equivalence(twin.reset(seed=9), env.reset(seed=9), exact=True)
    assert "Turn 1 of 7" in rebuilt.reset(seed=9)[0]
