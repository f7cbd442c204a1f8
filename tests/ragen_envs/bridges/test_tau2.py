"""τ²-bench's mock domain with a scripted user in place of its model, played by calls and words."""

import os
from typing import Any

import pytest

from ragen_envs import Tau2, ToolTurns

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import asks the network
gym_agent = pytest.importorskip("tau2.gym.gym_agent", reason="make test-bridges runs this one")


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asks for the task, then is content once the agent has answered."""
    from loguru import logger
    from tau2.data_model.message import UserMessage
    from tau2.user.user_simulator import UserSimulator

    class Scripted(UserSimulator):  # type: ignore[misc, unused-ignore]
        def generate_next_message(self, message: Any, state: Any) -> tuple[Any, Any]:
            state.messages.append(message)
            said = [each.content for each in state.messages if each.role == "assistant" and each.content]
            text = "Thanks. ###STOP###" if said[-1] == "It is done." else f"You said {said[-1]!r}."
            text = "Please create 'Important Meeting' for user_1." if len(said) == 1 else text
            state.messages.append(UserMessage(role="user", content=text))
            return state.messages[-1], state

    logger.disable("tau2")
    user = lambda env: Scripted(instructions=env._get_task().user_scenario)  # noqa: E731
    monkeypatch.setattr(gym_agent.AgentGymEnv, "_get_user", user)


def call(name: str, **arguments: str) -> str:
    """A reply with one call."""
    inner = ", ".join(f'"{key}": "{value}"' for key, value in arguments.items())
    return f'<tool_call>{{"name": "{name}", "arguments": {{{inner}}}}}</tool_call>'


def test_a_conversation_with_calls_and_words_is_graded_by_the_state() -> None:
    turns = ToolTurns(Tau2("mock", user="nobody", tasks=["create_task_1"]))
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
    turns = ToolTurns(Tau2("mock", user="nobody", tasks=["create_task_1"]))
    turns.reset(seed=0)
    turns.step(call("create_task", user_id="user_1", title="Another"))
    assert turns.step("It is done.")[1:3] == (0.0, True)
    turns.reset(seed=0)
    _, reward, terminated, _, info = turns.step(call("done"))
    assert (reward, terminated, info["success"]) == (0.0, True, False)
    assert info["env_info"]["termination_reason"] == "agent_stop"
