"""AgentTurns: grammar, limits, rewards and messages, on lakes where every move is known."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Discrete, Text

from ragen_envs import AgentTurns, Bandit, FrozenLake, Sokoban, TextFromDiscrete, ToyShop, WebShopTools
from ragen_envs.reply_format import TAGS
from ragen_envs.text_env import TEXT_CHARSET
from tests.support.ragen_envs.timing import assert_linear


def dry(**arguments: Any) -> AgentTurns:
    """Start top left, goal bottom right, no holes, no slipping; reset."""
    env = AgentTurns(FrozenLake(frozen_prob=1.0, is_slippery=False, random_start=False), **arguments)
    env.reset(seed=0)
    return env


def answer(text: str) -> str:
    """A well-formed thinking reply around `text`."""
    return f"<think>hm</think><answer>{text}</answer>"


class Shout(gymnasium.Env[str, str]):
    """A third-party text environment without our info keys. It ends on the word END."""

    def __init__(self) -> None:
        """Sets its own spaces, with a letter that is not in ours."""
        self.observation_space = Text(10, charset="ABCDEN!é")
        self.action_space = Text(10)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        return "é", {"colour": "red"}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        return action.upper(), len(action), action == "end", False, {"colour": "blue"}


HOSTILE = [
    part * (100_000 // len(part)) for part in (*TAGS, "<", "</think> ", "<think></think>", "</think>\n<answer", "||")
]


@pytest.mark.parametrize("think", [True, False])
def test_hostile_replies_take_linear_time(think: bool) -> None:
    env = dry(think=think)

    def read(reply: str) -> None:
        env.reset(seed=0)
        env.step(reply)

    blanks, closings = "<think></think>" + " " * 100_000, "<think>" + "</think> " * 10_000
    assert_linear(read, [*HOSTILE, blanks, closings, answer("x||" * 30_000)])


def test_actions_run_in_order_and_their_rewards_add_up() -> None:
    env = dry(max_actions_per_turn=6)
    _, reward, terminated, truncated, info = env.step(answer("right || Down || RIGHT || Down || Right"))
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert info["actions"] == ("Right", "Down", "Right", "Down", "Right")
    assert (info["turn"], info["num_actions"], info["actions_left"], info["limit"]) == (1, 5, 5, "")
    message, reward, terminated, truncated, info = env.step(answer("Down || Left || Up"))
    assert (reward, terminated, truncated) == (1.0, True, False)
    assert (info["actions"], info["surplus_actions"], info["action_rewards"]) == (("Down",), ("Left", "Up"), (1.0,))
    assert (info["success"], info["turn"], info["actions_left"], info["env_reward"]) == (True, 2, 4, 1.0)
    assert message == "The end\nReward: 1\nState:\n____\n____\n____\n___√\nActions left: 4"


def test_unknown_actions_are_dropped_and_cost_one_penalty() -> None:
    env = dry()
    message, reward, _, _, info = env.step(answer("Jump || Right || down-ish || Down"))
    assert reward == -0.1
    assert (info["actions"], info["invalid_actions"]) == (("Right", "Down"), ("Jump", "down-ish"))
    assert (info["format_is_valid"], info["action_is_valid"], info["action_is_effective"]) == (True, False, True)
    assert (info["env_reward"], info["format_penalty"]) == (0.0, -0.1)
    assert message.splitlines()[:3] == [
        "Turn 2 of 5",
        "Unknown action ignored. Use: Left, Down, Right, Up",
        "Reward: 0",
    ]
    assert "Jump" not in message


@pytest.mark.parametrize(
    ("reply", "readable", "problem"),
    [
        ("Right", False, "Unreadable reply. Use: <think>your thoughts</think><answer>Left || Down</answer>"),
        (answer(""), True, "No action found. Use: Left, Down, Right, Up"),
        (answer("Jump"), True, "Unknown action ignored. Use: Left, Down, Right, Up"),
    ],
)
def test_bad_turns_that_do_nothing(reply: str, readable: bool, problem: str) -> None:
    message, reward, terminated, truncated, info = dry().step(reply)
    assert (reward, terminated, truncated) == (-0.1, False, False)
    assert (info["format_is_valid"], info["action_is_valid"], info["action_is_effective"]) == (readable, False, False)
    assert (info["actions"], info["actions_left"], info["turn"]) == ((), 10, 1)
    assert message.splitlines()[1] == problem


def test_surplus_is_recorded_and_free() -> None:
    _, reward, _, _, info = dry(max_actions_per_turn=2).step(answer("Right || Left || Jump || Right"))
    assert reward == 0.0
    assert (info["actions"], info["surplus_actions"], info["invalid_actions"]) == (
        ("Right", "Left"),
        ("Jump", "Right"),
        (),
    )
    assert info["action_is_valid"]


def test_every_action_of_a_reply_is_accounted_for() -> None:
    env = dry(max_actions=4)
    rng = np.random.default_rng(0)
    for seed in range(100):
        env.reset(seed=seed)
        texts = rng.choice(["Left", "up", "Jump", "DOWN", "42"], rng.integers(0, 9)).tolist()
        info = env.step(answer(" || ".join(texts)))[-1]
        parts = [*info["actions"], *info["invalid_actions"], *info["surplus_actions"]]
        assert sorted(part.lower() for part in parts) == sorted(text.lower() for text in texts)
        assert len(info["action_rewards"]) == info["num_actions"] == 4 - info["actions_left"]


def test_moves_into_the_border_are_valid_but_not_effective() -> None:
    info = dry().step(answer("Up || Left"))[-1]
    assert (info["action_is_valid"], info["action_is_effective"]) == (True, False)


def test_turn_limit_truncates() -> None:
    env = dry(max_turns=2)
    assert env.step(answer("Up"))[2:4] == (False, False)
    message, _, terminated, truncated, info = env.step("?")
    assert (terminated, truncated, info["limit"], info["turn"]) == (False, True, "turns", 2)
    assert message.startswith("The end\nUnreadable reply.")


def test_action_limit_truncates_and_cuts_the_turn() -> None:
    env = dry(max_actions=3)
    _, _, terminated, truncated, info = env.step(answer("Up || Jump || Up || Up || Up"))
    assert (terminated, truncated, info["limit"], info["actions_left"]) == (False, True, "actions", 0)
    assert (info["actions"], info["invalid_actions"], info["surplus_actions"]) == (("Up",) * 3, ("Jump",), ("Up",))


def test_success_with_the_last_action_is_terminated_not_truncated() -> None:
    env = dry(max_turns=1, max_actions=6, max_actions_per_turn=6)
    _, reward, terminated, truncated, info = env.step(answer("Right||Right||Right||Down||Down||Down"))
    assert (reward, terminated, truncated, info["limit"]) == (1.0, True, False, "")


def test_time_limit_of_the_environment_is_passed_on_and_invalid_actions_do_not_use_it() -> None:
    env = AgentTurns(gymnasium.make("ragen/FrozenLake-v0", frozen_prob=1.0, random_start=False, max_episode_steps=3))
    env.reset(seed=0)
    assert env.step(answer("Jump || Fly || Swim"))[2:4] == (False, False)
    _, _, terminated, truncated, info = env.step(answer("Up || Up || Up || Up"))
    assert (terminated, truncated, info["limit"]) == (False, True, "env")
    assert (info["actions"], info["surplus_actions"]) == (("Up",) * 3, ("Up",))


def test_after_the_end_nothing_happens() -> None:
    env = dry(max_turns=1)
    message, *_ = env.step(answer("Right"))
    again, reward, terminated, truncated, info = env.step(answer("Right"))
    assert (again, reward, terminated, truncated) == (message, 0.0, False, True)
    assert (info["turn"], info["actions"], info["limit"], info["format_penalty"]) == (1, (), "turns", 0.0)


def test_reset_starts_over() -> None:
    env = dry(max_turns=1, max_actions=1)
    first, info = env.reset(seed=0)
    env.step(answer("Right"))
    assert env.reset(seed=0) == (first, info)
    assert (info["turn"], info["actions_left"], info["limit"], info["format_penalty"]) == (0, 1, "", 0.0)
    assert env.actions_left == 1


def test_outcome_seed_is_passed_on() -> None:
    env = AgentTurns(Bandit())
    rewards = set()
    for outcome in range(40):
        env.reset(seed=0, options={"outcome_seed": outcome})
        rewards.add(env.step(answer("Dragon"))[1])
    assert rewards == {0.0, 1.0}


def test_first_message_without_thought() -> None:
    message, _ = dry(think=False).reset(seed=0)
    assert message == (
        "Walk over the frozen lake to the goal. A hole ends the game.\n"
        "P you, _ ice, O hole, G goal, X you in a hole, √ you on the goal\n"
        "Actions: Left, Down, Right, Up\n"
        "Limits: actions per turn 5, actions in all 10, turns 5\n"
        "Reply format: <answer>Left || Down</answer>\n"
        "\n"
        "Turn 1 of 5\n"
        "State:\nP___\n____\n____\n___G\n"
        "Actions left: 10"
    )


def test_messages_are_short_enough_for_a_tiny_model() -> None:
    env = AgentTurns(FrozenLake(), think=False)
    assert len(env.reset(seed=0)[0].split()) <= 90
    assert len(env.step("<answer>Up || Jump</answer>")[0].split()) <= 20 + 4


def test_the_example_in_the_message_is_a_valid_reply() -> None:
    for env in (dry(), dry(think=False), dry(max_actions_per_turn=1), dry(action_separator=";")):
        message, _ = env.reset(seed=0)
        example = next(line for line in message.splitlines() if line.startswith("Reply format: "))
        info = env.step(example.removeprefix("Reply format: "))[-1]
        assert info["action_is_valid"] and info["surplus_actions"] == ()
        assert example.removeprefix("Reply format: ").startswith(env.reply_prefix)


def test_arms_are_listed_in_the_order_of_the_episode() -> None:
    # Actions snapshotted at construction would list the same order for every seed.
    env = AgentTurns(Bandit())
    for seed in range(10):
        message, _ = env.reset(seed=seed)
        first, second = env.unwrapped.actions
        assert f"Actions: {first}, {second}\n" in message
        assert f"Machines: {first}, {second}\n" in message


def test_free_text_third_party_environment() -> None:
    env = AgentTurns(Shout(), instruction="Shout.", actions=(), think=False)
    message, info = env.reset(seed=0)
    assert message.startswith("Shout.\nLimits:") and "<answer>first action || second action</answer>" in message
    once = AgentTurns(Shout(), instruction="Shout.", actions=(), max_actions_per_turn=1)
    assert "<answer>your answer</answer>" in once.reset(seed=0)[0]
    assert message in env.observation_space and "é" in message
    message, reward, terminated, _, info = env.step("<answer>aé || bb || end || cc</answer>")
    assert (reward, terminated) == (2.0 + 2.0 + 3.0, True)
    assert (info["actions"], info["surplus_actions"]) == (("aé", "bb", "end"), ("cc",))
    assert (info["success"], info["action_is_effective"], info["colour"]) == (False, True, "blue")


def test_named_actions_of_a_third_party_environment() -> None:
    env = AgentTurns(Shout(), instruction="Shout.", actions=["abba", "end"], think=False)
    env.reset(seed=0)
    info = env.step("<answer>ABBA || ab</answer>")[-1]
    assert (info["actions"], info["invalid_actions"]) == (("abba",), ("ab",))


@pytest.mark.parametrize("given", [{}, {"instruction": "Shout."}, {"actions": ["a"]}])
def test_third_party_environment_needs_instruction_and_actions(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="pass instruction= and actions="):
        AgentTurns(Shout(), **given)


def test_observations_must_be_text() -> None:
    env = Shout()
    env.observation_space = Discrete(3)  # type: ignore[assignment]
    with pytest.raises(ValueError, match="not text"):
        AgentTurns(env, instruction="Shout.", actions=())


@pytest.mark.parametrize("name", ["max_turns", "max_actions_per_turn", "max_actions"])
def test_limits_below_one_are_named(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=0"):
        dry(**{name: 0})


@pytest.mark.parametrize("penalty", [0.1, float("nan")])
def test_a_positive_penalty_is_refused(penalty: float) -> None:
    with pytest.raises(ValueError, match="format_penalty="):
        dry(format_penalty=penalty)


def test_a_thought_is_asked_for_by_a_boolean() -> None:
    with pytest.raises(ValueError, match="think='false' is a str; use True or False"):
        AgentTurns(FrozenLake(), think="false")  # type: ignore[arg-type]


def test_step_before_reset_says_so() -> None:
    with pytest.raises(gymnasium.error.ResetNeeded, match="call reset first"):
        AgentTurns(FrozenLake()).step("x")


def test_messages_hold_only_known_characters() -> None:
    env = dry()
    for reply in ("日本", answer("日本"), answer("Up")):
        assert set(env.step(reply)[0]) <= set(TEXT_CHARSET)


def test_a_name_that_no_reply_can_carry_is_refused_whatever_the_order() -> None:
    env = AgentTurns(Bandit(names=[["a||b", "c"]]))
    for seed in range(4):
        with pytest.raises(ValueError, match=r"action 'a\|\|b' is blank, padded, or has a tag"):
            env.reset(seed=seed)
    assert "a||b" in AgentTurns(Bandit(names=[["a||b", "c"]]), action_separator=";").reset(seed=0)[0]


def test_the_limit_of_a_turn_is_never_above_that_of_the_episode() -> None:
    message, _ = AgentTurns(Bandit(), max_actions=1).reset(seed=0)
    assert "Limits: actions per turn 1, actions in all 1, turns 5" in message


def short_lake() -> TextFromDiscrete:
    return TextFromDiscrete(
        "FrozenLake-v1",
        ("Left", "Down", "Right", "Up"),
        env_kwargs={"is_slippery": False, "max_episode_steps": 3},
        instruction="Walk.",
        success=lambda reward, terminated, info: reward > 0,
    )


@pytest.mark.parametrize(
    "env",
    [
        lambda: Sokoban(max_steps=3),
        lambda: gymnasium.make("ragen/FrozenLake-v0", frozen_prob=1.0, size=9, max_episode_steps=3),
        lambda: gymnasium.wrappers.TimeLimit(Sokoban(max_steps=4), 3),
        short_lake,
    ],
)
def test_a_smaller_limit_of_the_environment_is_told(env: Any) -> None:
    """Regression: `max_actions` was counted down, past a limit that ended the episode with actions left."""
    turns = AgentTurns(env(), max_actions_per_turn=1)
    message, info = turns.reset(seed=0)
    assert "Limits: actions per turn 1, actions in all 3, turns 5" in message
    for left in (3, 2, 1):
        assert message.endswith(f"Actions left: {left}") and info["actions_left"] == turns.actions_left == left
        assert "actions in all 3" in turns.opening
        message, _, _, truncated, info = turns.step(answer("Left"))
    assert message.startswith("The end\n") and message.endswith("Actions left: 0")
    assert (truncated, info["limit"], turns.max_actions) == (True, "env", 10)
    assert info["limit_is_told"]  # regression: a critic's value stood for what comes after it
    assert turns.reset(seed=1)[1]["actions_left"] == 3


@pytest.mark.parametrize("env", [WebShopTools, ToyShop])
def test_the_limit_of_a_shop_counts_valid_actions(env: Any) -> None:
    shop = env(max_steps=2, **({"catalog": "toy"} if env is WebShopTools else {}))
    shop.reset(seed=0)
    assert shop.steps_left == 2
    shop.step("nonsense")
    assert shop.steps_left == 2
    shop.step('{"name": "search", "arguments": {"query": "shoe"}}' if env is WebShopTools else "search:shoe")
    assert shop.steps_left == 1
    shop.close()


def test_an_id_is_no_environment() -> None:
    with pytest.raises(ValueError, match="env='ragen/Bandit-v0' is not an environment; pass what gymnasium.make"):
        AgentTurns("ragen/Bandit-v0")  # type: ignore[arg-type]


def test_the_first_message_is_its_own_opening() -> None:
    turns = AgentTurns(FrozenLake())
    message, _ = turns.reset(seed=3)
    assert turns.opening == message
    turns.step(turns.format_reply(["Up"]))
    message, _ = turns.reset(seed=4)
    assert turns.opening == message


def test_a_later_opening_is_the_rules_and_the_last_message() -> None:
    turns = AgentTurns(FrozenLake(), max_turns=3)
    first, _ = turns.reset(seed=3)
    rules = first[: first.index("Turn 1 of 3")]
    for reply in ("nonsense", turns.format_reply(["Up"], "hm"), turns.format_reply(["Up"], "hm")):
        message, *_ = turns.step(reply)
        assert turns.opening == rules + message
        assert message not in first and turns.opening in turns.observation_space
    assert message.startswith("The end")


def test_no_opening_before_reset() -> None:
    with pytest.raises(ResetNeeded, match="call reset first"):
        _ = AgentTurns(FrozenLake()).opening
