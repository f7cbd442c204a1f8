"""Verifiers both ways, with its own classes of environments, rubrics and clients."""

import asyncio
from typing import Any

import pytest
from gymnasium.utils.env_checker import check_env

from ragen_envs import AgentTurns, FrozenLake, ToolTurns
from ragen_envs.bridges import ForeignEnvError, VerifiersText, VerifiersTools, verifiers_environment
from ragen_envs.bridges.verifiers_rollout import shared_loop
from tests.support.ragen_envs.bridging import RULES, small_turns
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


def test_its_limit_of_turns_truncates() -> None:
    env = VerifiersText(guessing(max_turns=2))
    env.reset(seed=0)
    assert env.step("0")[2:4] == (False, False)
    _, reward, terminated, truncated, info = env.step("0")
    assert (reward, terminated, truncated, info["success"]) == (0.0, False, True, False)
    assert info["env_info"]["stop_condition"] == "max_turns_reached"


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


def test_a_conversation_without_tools_needs_no_tags() -> None:
    turns = ToolTurns(VerifiersTools(guessing(max_turns=5)))
    message, _ = turns.reset(seed=0)
    assert message.split("\n")[0] == "Guess." and turns.tools == ()
    assert turns.step("0")[:4] == ("Wrong, try 1.", 0.0, False, False)


def test_gymnasiums_checker_passes() -> None:
    for env in (VerifiersText(guessing()), VerifiersTools(guessing())):
        check_env(env, skip_render_check=True, skip_close_check=True)
        env.close()


def test_episodes_that_are_left_are_cleaned_up() -> None:
    cleaned = []

    class Careful(Guessing):
        @vf.cleanup
        async def note(self, state: Any) -> None:
            cleaned.append(state["example_id"])

    env = VerifiersText(Careful(dataset=data(), rubric=vf.Rubric(funcs=[right])))
    for seed in range(3):
        env.reset(seed=seed)
    env.close()
    asyncio.run_coroutine_threadsafe(asyncio.sleep(0.05), shared_loop()).result(5)
    assert len(cleaned) == 3


def test_failures_of_the_environment_are_errors_and_not_rewards() -> None:
    env = VerifiersText(guessing())
    env.reset(seed=0)
    with pytest.raises(ForeignEnvError, match=r"a rollout of verifiers failed: .*no sandbox"):
        env.step("break")
    env.reset(seed=0)  # and it can be played again
    assert env.step("0")[0] == "Wrong, try 1."


def test_mistakes_are_named() -> None:
    async def best(completions: Any, **more: Any) -> list[float]:
        return [0.0] * len(completions)

    with pytest.raises(ValueError, match="env='wordle' is no MultiTurnEnv; pass what verifiers.load_environment"):
        VerifiersText("wordle")
    with pytest.raises(ValueError, match="scores groups of rollouts"):
        VerifiersText(vf.SingleTurnEnv(dataset=data(), rubric=vf.Rubric(funcs=[best])))
    with pytest.raises(ValueError, match="ToolEnv has tools; use VerifiersTools"):
        VerifiersText(vf.ToolEnv(tools=[look_up], dataset=data(), rubric=vf.Rubric(funcs=[right]))).reset(seed=0)
    with pytest.raises(ValueError, match="split='test' is unknown; use one of train, eval"):
        VerifiersText(guessing(), split="test")
    with pytest.raises(ValueError, match="there are no seeds"):
        verifiers_environment("ragen/FrozenLake-v0", seeds=[])


def scripted(*replies: str) -> Any:
    """A client of verifiers that says these replies in turn."""
    from verifiers.types import ResponseMessage

    class Script(vf.Client):
        def setup_client(self, config: Any) -> Any:
            return None

        async def to_native_tool(self, tool: Any) -> Any:
            return tool

        async def to_native_prompt(self, messages: Any) -> Any:
            return messages, {}

        async def get_native_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **m: Any
        ) -> Any:
            said = replies[sum(message.role == "assistant" for message in prompt)]
            message = ResponseMessage(content=said, finish_reason="stop", is_truncated=False)
            return vf.Response(id="", created=0, model=model, message=message)

        async def raise_from_native_response(self, response: Any) -> None: ...

        async def from_native_response(self, response: Any) -> Any:
            return response

        async def close(self) -> None: ...

    return Script(None)


def test_verifiers_plays_ours() -> None:
    """Its own rollout and rubric over the small lake: messages, return and success are those of `AgentTurns`."""
    env = verifiers_environment(small_turns, seeds=[3, 4])
    rows = env.get_dataset()
    assert rows[1]["prompt"][0]["content"] == small_turns().reset(seed=4)[0] and rows[1]["info"] == {"seed": 4}
    for reply, reward, success in ((answer("Right", "Down"), 1.0, 1.0), ("nonsense", -0.1, 0.0)):
        output = asyncio.run(env.run_rollout(rows[0], scripted(reply), "script", {}, state_columns=["trajectory"]))
        assert (output["reward"], output["metrics"]["success"]) == (reward, success)
        assert output["stop_condition"] == "has_final_env_response" and output["error"] is None
        near = small_turns()
        near.reset(seed=3)
        assert [message["role"] for message in output["completion"]] == ["assistant", "user"]
        assert output["completion"][-1]["content"] == near.step(reply)[0]
        assert output["prompt"][0]["content"].startswith(RULES)
        assert output["trajectory"][0]["extras"] == {"turn_reward": reward}


def test_rollouts_of_ours_share_the_start_and_not_the_outcomes() -> None:
    env = verifiers_environment("ragen/FrozenLake-v0", seeds=[5])
    row, client = env.get_dataset()[0], scripted(*[answer("Down")] * 5)
    outputs = [asyncio.run(env.run_rollout(row, client, "script", {})) for _ in range(6)]
    assert {output["prompt"][0]["content"] for output in outputs} == {AgentTurns(FrozenLake()).reset(seed=5)[0]}
    assert len({str(output["completion"]) for output in outputs}) > 1
