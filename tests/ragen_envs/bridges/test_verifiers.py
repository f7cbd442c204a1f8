"""Verifiers both ways, with its own classes of environments, rubrics and clients."""

from typing import Any

import pytest

from ragen_envs import AgentTurns, ToolTurns
from ragen_envs.bridges import VerifiersText, VerifiersTools
from tests.support.ragen_envs.toys import answer

vf = pytest.importorskip("verifiers", reason="make test-bridges runs this one")
if not hasattr(vf, "MultiTurnEnv"):
    pytest.skip("verifiers 0.3 and later have no MultiTurnEnv", allow_module_level=True)
SUMS = {"question": ["1 + 1", "2 + 3", "4 + 5"], "answer": ["2", "5", "9"]}


def data() -> Any:
    """Three questions."""
    from datasets import Dataset

    return Dataset.from_dict(SUMS)


def right(completion: Any, answer: str) -> float:
    """1 if the answer is in the last reply."""
    said = [message for message in completion if message.role == "assistant"]
    return float(answer in (said[-1].content or ""))


class Guessing(vf.MultiTurnEnv):
    """Says whether a guess is too low; the right one ends it, with a last message."""

    async def setup_state(self, state: Any) -> Any:
        state["tries"] = 0
        return state

    async def env_response(self, messages: Any, state: Any, **more: Any) -> Any:
        state["tries"] += 1
        if messages[-1].content == "break":
            raise vf.InfraError("no sandbox")
        if messages[-1].content == f"<guess>{state['answer']}</guess>":
            state["final_env_response"] = [vf.UserMessage(role="user", content="Right!")]
            return state["final_env_response"]
        return [vf.UserMessage(role="user", content=f"Wrong, try {state['tries']}.")]


def guessing(**more: Any) -> Any:
    """A game of guessing whose reward is smaller for every try."""

    def tries(state: Any) -> float:
        return 1.0 / state["tries"] if state.get("final_env_response") else 0.0

    return Guessing(dataset=data(), system_prompt="Guess.", rubric=vf.Rubric(funcs=[tries]), **more)


def test_a_single_turn_is_terminated_and_scored_by_the_rubric() -> None:
    env = VerifiersText(vf.SingleTurnEnv(dataset=data(), system_prompt="Add.", rubric=vf.Rubric(funcs=[right])))
    turns, seen = AgentTurns(env, max_actions_per_turn=1), set()
    for seed in range(12):
        message, info = turns.reset(seed=seed)
        assert message.startswith("Add.\nLimits: ")
        question = info["state"]
        seen.add(question)
        assert (info["env_info"]["example_id"], info["env_info"]["metrics"]) == (SUMS["question"].index(question), {})
        _, reward, terminated, truncated, info = turns.step(answer(dict(zip(*SUMS.values(), strict=True))[question]))
        assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
        assert info["env_info"]["metrics"]["right"] == 1.0
        assert turns.reset(seed=seed)[1]["state"] == question
        assert turns.step(answer("no"))[1:3] == (0.0, True)
    assert seen == set(SUMS["question"])


def test_several_turns_with_a_last_message_and_a_rubric() -> None:
    env = VerifiersText(guessing(max_turns=5), write="<guess>{}</guess>".format)
    observation, info = env.reset(seed=0)
    number = dict(zip(*SUMS.values(), strict=True))[observation]
    assert env.instruction == "Guess." and env.task == observation
    assert env.step("0")[:4] == ("Wrong, try 1.", 0.0, False, False)
    observation, reward, terminated, truncated, info = env.step(number)
    assert (observation, reward, terminated, truncated, info["success"]) == ("Right!", 0.5, True, False, True)
    assert info["env_info"]["stop_condition"] == "has_final_env_response"
    assert info["env_info"]["metrics"] == {"tries": 0.5, "num_turns": 2.0}
    assert env.step(number)[1:4] == (0.0, True, False)


def look_up(name: str) -> int:
    """Look up a number.

    Args:
        name: Whose.
    """
    return {"Anna": 7, "Ben": 8}[name]


def test_tools_are_called_and_words_end_it() -> None:
    env = vf.ToolEnv(tools=[look_up], dataset=data(), rubric=vf.Rubric(funcs=[right]), max_turns=6)
    turns = ToolTurns(VerifiersTools(env, purpose="Use the tools."))
    message, _ = turns.reset(seed=0)
    assert message.startswith("Use the tools.\n") and message.split("\n")[1] in SUMS["question"]
    schema = turns.tools[0]["function"]
    assert (schema["name"], schema["parameters"]["required"]) == ("look_up", ["name"])
    call = '<tool_call>{"name": "look_up", "arguments": {"name": "%s"}}</tool_call>'
    *_, info = turns.step(call % "Anna" + call % "Ben")
    assert info["tool_results"] == ("7", "8") and info["tool"] == "look_up"
    *_, info = turns.step(call % "Carl")
    assert info["tool_results"] == ("'Carl'",) and info["format_penalty"] == 0.0
    *_, info = turns.step('<tool_call>{"name": "look_up", "arguments": {}}</tool_call>')
    assert info["tool_results"] == ("Error: look_up needs name",) and info["format_penalty"] == -0.1
    _, reward, terminated, truncated, info = turns.step("2, 5 or 9")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert info["env_info"]["stop_condition"] == "no_tools_called"
    assert info["env_info"]["metrics"]["look_up_calls"] == 3
