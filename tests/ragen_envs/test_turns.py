"""AgentTurns: grammar, limits, rewards, messages and pictures, on lakes where every move is known."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Text

from ragen_envs import AgentTurns, FrozenLake
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
    # Those past a turn's limit are surplus, whatever they are.
    env = dry(max_actions_per_turn=2)
    _, reward, _, _, info = env.step(answer("Right || Down || Right || Jump"))
    assert (info["actions"], info["surplus_actions"]) == (("Right", "Down"), ("Right", "Jump"))
    assert (reward, info["invalid_actions"], info["actions_left"]) == (0.0, (), 8)
    assert info["state"] == "____\n_P__\n____\n___G"


def test_unknown_actions_are_dropped_and_cost_one_penalty() -> None:
    env = dry()
    message, reward, _, _, info = env.step(answer("Jump || Right || down-ish || Down"))
    assert reward == -0.1
    assert (info["actions"], info["invalid_actions"]) == (("Right", "Down"), ("Jump", "down-ish"))
    assert (info["format_is_valid"], info["action_is_valid"], info["action_is_effective"]) == (True, False, True)
    assert (info["env_reward"], info["format_penalty"]) == (0.0, -0.1)
    known = "Use: Left, Down, Right, Up"
    assert message.startswith(f"Turn 2 of 5\nUnknown action ignored. {known}\nReward: 0\n") and "Jump" not in message
    for reply, readable, problem in (
        ("Right", False, "Unreadable reply. Use: <think>your thoughts</think><answer>Left || Down</answer>"),
        (answer(""), True, f"No action found. {known}"),
        (answer("Jump"), True, f"Unknown action ignored. {known}"),
    ):
        message, reward, terminated, truncated, info = dry().step(reply)
        assert (reward, terminated, truncated) == (-0.1, False, False)
        valid = info["format_is_valid"], info["action_is_valid"], info["action_is_effective"]
        assert valid == (readable, False, False)
        assert (info["actions"], info["actions_left"], info["turn"]) == ((), 10, 1)
        assert message.splitlines()[1] == problem


def test_limits_of_turns_and_actions_truncate_unless_the_last_action_succeeds() -> None:
    env = dry(max_turns=2)
    assert env.step(answer("Up"))[2:4] == (False, False)
    message, _, terminated, truncated, info = env.step("?")
    assert (terminated, truncated, info["limit"], info["turn"]) == (False, True, "turns", 2)
    assert message.startswith("The end\nUnreadable reply.")
    *_, terminated, truncated, info = dry(max_actions=3).step(answer("Up || Jump || Up || Up || Up"))
    assert (terminated, truncated, info["limit"], info["actions_left"]) == (False, True, "actions", 0)
    assert (info["actions"], info["invalid_actions"], info["surplus_actions"]) == (("Up",) * 3, ("Jump",), ("Up",))
    env = dry(max_turns=1, max_actions=6, max_actions_per_turn=6)
    _, reward, terminated, truncated, info = env.step(answer("Right||Right||Right||Down||Down||Down"))
    assert (reward, terminated, truncated, info["limit"]) == (1.0, True, False, "")


def test_time_limit_of_the_environment_is_counted_down_and_invalid_actions_do_not_use_it() -> None:
    env = AgentTurns(gymnasium.make("ragen/FrozenLake-v0", frozen_prob=1.0, random_start=False, max_episode_steps=3))
    env.reset(seed=0)
    for reply, left in (("Jump || Fly || Swim", 3), ("Up || Up", 1)):
        message, _, terminated, truncated, info = env.step(answer(reply))
        assert (terminated, truncated, info["actions_left"]) == (False, False, left)
        assert message.endswith(f"Actions left: {left}")
    message, _, terminated, truncated, info = env.step(answer("Up || Up"))
    assert (terminated, truncated, info["limit"], info["limit_is_told"]) == (False, True, "env", True)
    assert (info["actions"], info["surplus_actions"], info["actions_left"]) == (("Up",), ("Up",), 0)
    assert message.startswith("The end")


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


def test_a_later_opening_is_the_rules_and_the_last_message() -> None:
    turns = AgentTurns(FrozenLake(), max_turns=3)
    first, _ = turns.reset(seed=3)
    rules = first[: first.index("Turn 1 of 3")]
    for reply in ("nonsense", turns.format_reply(["Up"], "hm"), turns.format_reply(["Up"], "hm")):
        message, *_ = turns.step(reply)
        assert turns.opening == rules + message
        assert message not in first and turns.opening in turns.observation_space
    assert message.startswith("The end")


class Poem(gymnasium.Env[str, str]):
    """Not ours: free text, a point for each word, solved by the word "end"."""

    observation_space, action_space = Text(500, min_length=0, charset=TEXT_CHARSET + "♥"), Text(100)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.lines: list[str] = []
        return "♥", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.lines.append(action)
        words = action.split()
        info = {"success": np.bool_("end" in words)}
        return "♥\n" + "\n".join(self.lines), float(len(words)), "end" in words, False, info


def test_free_text_is_passed_on_as_written() -> None:
    turns = AgentTurns(Poem(), instruction="Write.", actions=())
    message, _ = turns.reset(seed=0)
    assert "Actions:" not in message and "<answer>first action || second action</answer>" in message
    assert message in turns.observation_space
    message, reward, terminated, _, info = turns.step("<think></think><answer>Roses are Red|| the end ||no</answer>")
    assert (reward, terminated, info["success"]) == (3.0 + 2.0, True, True)
    assert (info["actions"], info["surplus_actions"]) == (("Roses are Red", "the end"), ("no",))
    assert info["action_rewards"] == (3.0, 2.0)
    assert message == "The end\nReward: 5\nState:\n♥\nRoses are Red\nthe end\nActions left: 8"


def test_the_picture_is_the_rendered_state_and_the_text_has_no_map() -> None:
    drawn = gymnasium.make("ragen/Sokoban-v0", render_mode="rgb_array")
    turns = AgentTurns(drawn, observation="image", image_size=288)
    message, info = turns.reset(seed=0)
    assert np.array_equal(message["image"], turns.env.render())
    assert info["state"].count("\n") == 5 and info["state"] not in message["text"]
    assert "State: the picture\nActions left: 10" in message["text"]
    assert "brick wall" in message["text"] and "# wall" not in message["text"]
    message, *_ = turns.step(turns.format_reply(["Up", "Left", "Down"], "go"))
    assert np.array_equal(message["image"], turns.env.render())
    assert message["text"].startswith("Turn 2 of 5\n")


def test_any_environment_of_text_plays_by_its_docstring_and_by_a_return_that_is_success() -> None:
    env = AgentTurns(Poem(), think=False, success_return=2.5)
    message, info = env.reset(seed=0)
    assert message.startswith('Not ours: free text, a point for each word, solved by the word "end".\nLimits')
    assert not info["success"] and env.actions is None
    assert [env.step(answer(words))[4]["success"] for words in ("to be", "or", "not")] == [False, True, True]
    with pytest.raises(ValueError, match="says nowhere what its task is"):
        AgentTurns(type("Silent", (Poem,), {})())
    numbers = type("Numbers", (Poem,), {"__doc__": "Count.", "action_space": gymnasium.spaces.Discrete(2)})
    with pytest.raises(ValueError, match=r"actions Discrete\(2\), but both"):
        AgentTurns(numbers())
    with pytest.raises(ValueError, match="takes whole replies already"):  # as by an id whose factory wraps
        AgentTurns(gymnasium.wrappers.OrderEnforcing(env))


def test_an_end_without_a_word_on_success_is_a_failure_that_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Poem, "step", lambda env, action: ("", 1.0, True, False, {}))
    env = AgentTurns(Poem(), instruction="Go.", actions=())
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="ended without 'success' in its info, which counts as a failure"):
        _, reward, terminated, _, info = env.step(answer("end"))
    assert (reward, terminated, info["success"]) == (1.0, True, False)


@pytest.mark.parametrize("section", ["Args:\n", "## Version History\n", "Parameters\n    ----------\n"])
def test_a_docstring_is_the_task_up_to_its_sections(section: str) -> None:
    kind = type("Plain", (Poem,), {"__doc__": f"Say it back.\n\n    Word by word.\n\n    {section}    x: 1\n"})
    assert AgentTurns(kind()).instruction == "Say it back.\n\nWord by word."
