"""τ²-bench's mock domain with a scripted user, played by calls and words."""

import os
import threading
from collections.abc import Sequence

import pytest
from gymnasium.utils.env_checker import check_env

from ragen_envs import ToolTurns
from ragen_envs.bridges import ForeignEnvError, Tau2
from ragen_envs.calling.tool import write_answer

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import asks the network
pytest.importorskip("tau2.gym.gym_agent", reason="make test-bridges runs this one")


@pytest.fixture(autouse=True)
def quiet() -> None:
    from loguru import logger

    logger.disable("tau2")


def user(scenario: str, said: Sequence[str]) -> str:
    """Asks for what the scenario says, then is content once the agent has answered."""
    if len(said) == 1:
        return "Please create 'Important Meeting' for user_1." if "Important Meeting" in scenario else "Finish task_1."
    return "Thanks. ###STOP###" if said[-1] == "It is done." else f"You said {said[-1]!r}."


def call(name: str, **arguments: str) -> str:
    """A reply with one call."""
    inner = ", ".join(f'"{key}": "{value}"' for key, value in arguments.items())
    return f'<tool_call>{{"name": "{name}", "arguments": {{{inner}}}}}</tool_call>'


def test_a_conversation_with_calls_and_words_is_graded_by_the_state() -> None:
    turns = ToolTurns(Tau2("mock", user=user, tasks=["create_task_1"]))
    message, info = turns.reset(seed=0)
    assert message.startswith("Serve the user by the policy below.") and "1. Each task must have a title" in message
    assert message.endswith("\nPlease create 'Important Meeting' for user_1.")
    assert info["env_info"] == {"task_id": "create_task_1", "termination_reason": "", "reward_info": {}}
    names = [tool["function"]["name"] for tool in turns.tools]
    assert names == ["create_task", "get_users", "update_task_status", "transfer_to_human_agents", "done"]

    message, reward, terminated, truncated, info = turns.step("Who is it for?")  # words do not end the episode
    assert (message, reward, terminated, truncated) == ("You said 'Who is it for?'.", 0.0, False, False)
    assert info["tool_results"] == () and info["tool"] == ""
    *_, info = turns.step(call("create_task", user_id="user_9", title="Important Meeting"))
    assert info["tool_results"] == ("Error: User user_9 not found",) and info["tool_failed"]
    message, *_, info = turns.step(call("create_task", user_id="user_1", title="Important Meeting"))
    assert message.startswith('{"task_id": "task_2", "title": "Important Meeting"') and not info["tool_failed"]
    message, reward, terminated, truncated, info = turns.step("It is done.")
    assert (message, reward, terminated, truncated) == ("Thanks. ###STOP###", 1.0, True, False)
    assert info["success"] and info["env_info"]["termination_reason"] == "user_stop"
    assert info["env_info"]["reward_info"]["reward"] == 1.0
    assert turns.step("More.")[1:4] == (0.0, True, False)


def test_a_wrong_state_and_an_early_end_earn_nothing() -> None:
    turns = ToolTurns(Tau2("mock", user=user, tasks=["create_task_1"]))
    turns.reset(seed=0)
    turns.step(call("create_task", user_id="user_1", title="Another"))
    assert turns.step("It is done.")[1:3] == (0.0, True)
    turns.reset(seed=0)
    _, reward, terminated, _, info = turns.step(call("done"))
    assert (reward, terminated, info["success"]) == (0.0, True, False)
    assert info["env_info"]["termination_reason"] == "agent_stop"


def test_wrong_calls_never_reach_the_domain() -> None:
    turns = ToolTurns(Tau2("mock", user=user, tasks=["create_task_1"]))
    turns.reset(seed=0)
    *_, info = turns.step(call("create_task", user_id="user_1"))
    assert info["tool_results"] == ("Error: create_task needs title",) and info["format_penalty"] == -0.1
    *_, info = turns.step(call("drop_table"))
    assert info["tool_results"][0].startswith("Error: there is no such tool; the tools are create_task,")


@pytest.mark.parametrize(
    "words",
    [
        "create_task(user_id='user_1', title='Important Meeting')",
        " drop_table (name='users')\n",
        "done()",
        '{"name": "create_task", "arguments": {"user_id": "user_1", "title": "Important Meeting"}}',
    ],
)
def test_words_are_never_a_call(words: str) -> None:
    """Regression: τ²-bench carries out words that look like a call, past the schemas of the tools and the penalty."""
    env = Tau2("mock", user=user, tasks=["create_task_1"])
    env.reset(seed=0)
    message, reward, terminated, _, info = env.step(write_answer(words))
    assert message == f"You said {words.rstrip() + '.'!r}." and (reward, terminated, info["tool"]) == (0.0, False, "")
    message, *_ = env.step(write_answer("I see (now)"))
    assert message == "You said 'I see (now)'."
    assert env.step(write_answer("It is done."))[1:3] == (0.0, True)  # nothing has changed


def test_its_own_limit_truncates() -> None:
    turns = ToolTurns(Tau2("mock", user=user, tasks=["create_task_1"], max_steps=6))
    turns.reset(seed=0)
    for _ in range(5):
        _, reward, terminated, truncated, info = turns.step(call("get_users"))
        if truncated:
            break
    assert (reward, terminated, truncated, info["limit"]) == (0.0, False, True, "env")
    assert info["env_info"]["termination_reason"] == "max_steps" and not info["success"]


def test_seeds_draw_tasks() -> None:
    env = Tau2("mock", user=user, tasks=["create_task_1", "update_task_1"])
    drawn = [env.reset(seed=seed)[1]["env_info"]["task_id"] for seed in range(12)]
    assert set(drawn) == {"create_task_1", "update_task_1"}
    assert [env.reset(seed=seed)[1]["env_info"]["task_id"] for seed in range(12)] == drawn
    env.close()


def test_conversations_that_are_left_leave_no_thread() -> None:
    before = threading.active_count()
    env = Tau2("mock", user=user, tasks=["create_task_1"])
    for seed in range(5):
        env.reset(seed=seed)
    env.close()
    env._game._orchestrator_thread.join(5)
    assert threading.active_count() == before


def test_gymnasiums_checker_passes() -> None:
    env = Tau2("mock", user=user)
    check_env(env, skip_render_check=True, skip_close_check=True)
    env.close()


def test_mistakes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"domain='shop' is unknown; use one of .*mock"):
        Tau2("shop", user=user)
    with pytest.raises(ValueError, match=r"tasks \['nope'\] are not of the domain mock; it has create_task_1, "):
        Tau2("mock", user=user, tasks=["nope"])
    with pytest.raises(ValueError, match="tasks='create_task_1' must be a list"):
        Tau2("mock", user=user, tasks="create_task_1")
    with pytest.raises(ValueError, match="max_steps=0"):
        Tau2("mock", user=user, max_steps=0)


def test_a_user_that_fails_is_an_error_and_not_a_reward() -> None:
    def broken(scenario: str, said: Sequence[str]) -> str:
        if len(said) == 1:
            return "Hello."
        raise OSError("no model")

    env = Tau2("mock", user=broken, tasks=["create_task_1"])
    env.reset(seed=0)
    with pytest.raises(ForeignEnvError, match=r"the conversation of mock create_task_1 breaks off; its log \(loguru\)"):
        env.step('{"answer": "Hello."}')
    with pytest.raises(ForeignEnvError, match="does not begin"):
        Tau2("mock", user=lambda scenario, said: said[5], tasks=["create_task_1"]).reset(seed=0)


def test_a_model_can_play_the_user() -> None:
    """LiteLLM answers by itself, without a network, if it is told what to say."""
    replies = {"mock_response": "I want a task."}
    env = Tau2("mock", user="gpt-4.1", user_arguments=replies, tasks=["create_task_1"])
    assert env.reset(seed=0)[0] == "I want a task."
    assert env.step('{"answer": "Which one?"}')[:4] == ("I want a task.", 0.0, False, False)
    env.close()
