"""ToolEnv and ToolTurns: calls are carried out in order, what goes wrong is a result, and limits hold."""

import copy
import pickle
import threading
import warnings
from typing import Any

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from ragen_envs import AgentTurns, Tool, ToolTurns
from ragen_envs.calling.schema import ToolSignatureError
from ragen_envs.calling.tool import write_answer, write_call
from tests.support.ragen_envs.notes import Notes
from tests.support.ragen_envs.toys import calls

NO_JSON = 'Error: the call is not JSON of the form {"name": ..., "arguments": {...}}'


def turns(env: gymnasium.Env[str, str] | None = None, **kwargs: Any) -> ToolTurns:
    """An environment after a reset."""
    made = ToolTurns(env or Notes(), **kwargs)
    made.reset(seed=3)
    return made


def test_an_episode_from_the_first_message_to_the_reward() -> None:
    env = ToolTurns(Notes())
    message, info = env.reset(seed=3)
    assert message == "Keep the notes.\nWrite the secret number."
    assert info["tool_results"] == () and not info["success"]
    message, reward, terminated, truncated, info = env.step(calls(("secret", {})))
    number = env.game.number
    assert message == f'{{"number": {number}}}'
    assert (reward, terminated, truncated, info["tool_results"]) == (0.0, False, False, (message,))
    message, reward, terminated, truncated, info = env.step(calls(("write", {"text": str(number)})))
    assert (message, reward, terminated, truncated, info["success"]) == ("written", 1.0, True, False, True)
    again = env.step(calls(("read", {})))
    assert again[:4] == ("written", 0.0, True, False) and again[4]["tool_results"] == ()


def test_several_calls_of_a_reply_are_made_in_order() -> None:
    env = turns()
    reply = calls(("write", {"text": "a"}), ("write", {"text": "b", "times": 2}), ("read", {}))
    message, _, _, _, info = env.step(f"I write.\n{reply}")
    assert info["tool_results"] == ("written", "written", "a\nb\nb")
    assert message == "written\nwritten\na\nb\nb"
    assert info["num_actions"] == 3 and info["actions_left"] == 7
    assert info["actions"][1] == write_call("write", {"text": "b", "times": 2})


@pytest.mark.parametrize(
    ("reply", "result"),
    [
        ("<tool_call>{</tool_call>", NO_JSON),
        ("<tool_call>" + write_call("read", {}), NO_JSON),
        (calls(("erase", {})), "Error: there is no such tool; the tools are write, secret, read, fail, wait"),
        (calls(("write", {})), "Error: write needs text"),
        (calls(("write", {"text": 1})), "Error: text of write must be a string"),
        (calls(("read", {"page": 1})), "Error: read takes no arguments"),
    ],
)
def test_a_wrong_call_is_an_error_that_costs_a_penalty(reply: str, result: str) -> None:
    env = turns()
    message, reward, terminated, truncated, info = env.step(reply)
    assert (message, reward, terminated, truncated) == (result, -0.1, False, False)
    assert info["tool_results"] == (result,) and not info["action_is_valid"]
    assert env.game.notes == [] and info["actions_left"] == 10


@pytest.mark.parametrize(
    ("politely", "result"), [(True, "Error: not today"), (False, "Error: ZeroDivisionError: by zero")]
)
def test_an_exception_in_a_tool_is_a_result(politely: bool, result: str) -> None:
    message, reward, _, _, info = turns().step(calls(("fail", {"politely": politely})))
    assert (message, reward) == (result, 0.0)
    assert info["tool_failed"] and info["action_is_valid"] and not info["action_is_effective"]


def test_one_wrong_call_does_not_stop_the_others() -> None:
    _, reward, _, _, info = turns().step(calls(("write", {"text": "a"}), ("erase", {}), ("read", {})))
    assert [each[:6] for each in info["tool_results"]] == ["writte", "Error:", "a"]
    assert reward == -0.1


def test_an_answer_ends_the_episode() -> None:
    message, reward, terminated, truncated, info = turns().step("It cannot be done.")
    assert (message, reward, terminated, truncated) == ("The episode is over.", 0.0, True, False)
    assert info["actions"] == (write_answer("It cannot be done."),) and info["tool_results"] == ()


def test_a_result_is_cut_at_its_limit() -> None:
    env = turns(Notes(max_result_length=60))
    message = env.step(calls(("write", {"text": "x" * 50, "times": 4}), ("read", {})))[4]["tool_results"][1]
    assert message == "x" * 38 + "\n[203 characters, cut]" and len(message) <= 60


def test_a_result_has_any_characters() -> None:
    """Regression: those outside ASCII became question marks, so that a model could not write what it had to."""
    env = turns()
    env.step(calls(("write", {"text": "Zoë 日本"})))
    message = env.step(calls(("read", {})))[0]
    assert message == "Zoë 日本"
    assert message in env.observation_space and message in env.game.observation_space
    env.game.notes = ["half of a pair: \ud83d"]  # no character, and no tokenizer takes it
    assert env.step(calls(("read", {})))[0] == "half of a pair: ?"


def test_a_schema_may_be_true() -> None:
    """Regression: `step` and `ToolTurns` raised a TypeError."""

    class Box(Notes):
        tools = (Tool("put", "Put it.", {"type": "object", "properties": {"it": True}, "required": ["it"]}, str),)

    env = turns(Box())
    assert "- put(it: any): Put it." in env.game.instruction
    assert env.step(calls(("put", {})))[0] == "Error: put needs it"


def test_two_tools_of_one_name_are_refused() -> None:
    """Regression: the first one was dropped."""

    class Twice(Notes):
        tools = (Tool("put", "First.", {}, str), Tool("put", "Second.", {}, str))

    with pytest.raises(ToolSignatureError, match="two tools of Twice have the name 'put'"):
        ToolTurns(Twice())


def test_a_task_has_any_characters() -> None:
    class Café(Notes):
        def _start(self, options: Any) -> str:
            super()._start(options)
            return "Write the café's secret number."

    env = Café()
    assert env.reset(seed=3)[0] in env.observation_space
    assert write_call("write", {"text": "Zoë"}) in env.action_space


@pytest.mark.parametrize(
    ("limits", "result"),
    [
        ({"max_actions_per_turn": 2}, "Error: the last 2 calls were not made: a turn may have at most 2 calls"),
        ({"max_actions": 2}, "Error: the last 2 calls were not made: an episode may have at most 2 calls"),
        ({"max_actions_per_turn": 1}, "Error: the last 3 calls were not made: a turn may have at most 1 call"),
        ({"max_actions_per_turn": 3}, "Error: the last call was not made: a turn may have at most 3 calls"),
    ],
)
def test_calls_past_a_limit_are_not_made(limits: dict[str, int], result: str) -> None:
    """Regression: the limit of an episode was called that of a turn."""
    env = turns(**limits)
    message, *_, info = env.step(calls(*[("write", {"text": "a"})] * 4))
    made = min(limits.values())
    assert info["tool_results"] == (*["written"] * made, result) and message in env.observation_space
    assert env.game.notes == ["a"] * made and len(info["surplus_actions"]) == 4 - made


def test_any_number_of_calls_has_a_short_answer() -> None:
    """Regression: each call past the limit had a result of its own, and 350 made a message of 20,000 characters."""
    env = turns(max_turns=4)
    for call in ("<tool_call></tool_call>", calls(("read", {}))):
        message, *_, info = env.step(call * 350)
        assert len(info["tool_results"]) == 6 and len(info["surplus_actions"]) == 345
        assert info["tool_results"][5] == "Error: the last 345 calls were not made: a turn may have at most 5 calls"
        assert message in env.observation_space


def test_limits_of_turns_and_calls_truncate() -> None:
    env = turns(max_turns=2)
    assert env.step(calls(("read", {})))[2:4] == (False, False)
    result = env.step(calls(("read", {})))
    assert result[2:4] == (False, True) and result[4]["limit"] == "turns"
    assert not result[4]["limit_is_told"]  # no message counts down
    env = turns(max_actions=2)
    result = env.step(calls(*[("read", {})] * 3))
    assert result[2:4] == (False, True) and (result[4]["limit"], result[4]["num_actions"]) == ("actions", 2)


def test_a_call_that_hangs_is_an_error_until_it_ends() -> None:
    env = turns(Notes(call_timeout=0.05))
    assert env.step(calls(("wait", {})))[0] == "Error: no result within 0.05 seconds"
    assert env.step(calls(("write", {"text": "a"})))[0] == "Error: an earlier call has not ended yet"
    with pytest.raises(RuntimeError, match="a call of Notes still runs after its time limit; make a new environment"):
        env.reset(seed=4)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(RuntimeError, match="a call of Notes still runs after its time limit; copy or pickle"):
            copied(env)
    env.game.gate.set()
    for thread in threading.enumerate():
        if thread.name == "wait":
            thread.join(5)
    env.game.__dict__.pop("gate")  # an event has a lock, which cannot be copied
    # Regression: the thread that had ended was copied, too, which raised a TypeError.
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        assert twin.step(calls(("read", {})))[0] == "late"
    assert env.step(calls(("read", {})))[0] == "late"
    assert env.reset(seed=4)[0].endswith("number.")


def test_a_time_limit_changes_no_result() -> None:
    reply = calls(("write", {"text": "a"}), ("fail", {"politely": True}), ("read", {}))
    free, limited = (turns(Notes(call_timeout=limit)).step(reply) for limit in (None, 5.0))
    assert free == limited


def test_a_thought_may_be_asked_for() -> None:
    env = turns(think=True)
    assert env.reply_prefix == "<think>"
    assert env.step(calls(("read", {})))[0] == "Error: the reply has no thought before its calls"
    assert env.step(f"<think>so</think>{calls(('write', {'text': 'a'}))}")[0] == "written"
    assert env.step(env.format_reply([write_call("read", {})], "so"))[0] == "a"


def test_replies_are_written_in_the_form_of_the_model() -> None:
    env = turns()
    read = write_call("read", {})
    assert env.format_reply([read]) == '<tool_call>\n{"name": "read", "arguments": {}}\n</tool_call>'
    env.call_format = "json"
    assert env.format_reply([read, read]) == "; ".join(['{"name": "read", "parameters": {}}'] * 2)
    with pytest.raises(ValueError, match="call_format='xml' is unknown; use one of tags, json"):
        env.call_format = "xml"


def test_tools_are_described_for_the_template() -> None:
    assert [each["function"]["name"] for each in turns().tools] == ["write", "secret", "read", "fail", "wait"]
    assert turns().tools[0]["function"]["parameters"]["required"] == ["text"]


def test_the_same_environment_is_played_as_text() -> None:
    env = AgentTurns(Notes(), think=False)
    message, _ = env.reset(seed=3)
    assert "- write(text: string, times?: integer): Write a note." in message
    reply = env.format_reply([write_call("write", {"text": "a"}), write_call("read", {})])
    assert "State:\na\n" in env.step(reply)[0]
    assert env.step("<answer>erase[]</answer>")[4]["invalid_actions"] == ("erase[]",)


def test_a_tool_may_be_described_by_hand() -> None:
    class Counter(Notes):
        @property
        def tools(self) -> Any:
            schema = {"type": "object", "properties": {"by": {"type": "integer"}}, "required": ["by"]}
            return (Tool("add", "Add.", schema, lambda by: by + 1), self.read)

    env = turns(Counter())
    assert env.step(calls(("add", {"by": 2})))[0] == "3"
    assert env.tools[0]["function"]["description"] == "Add."


def test_checkers_and_copies() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version")
        warnings.filterwarnings("ignore", message=".*doesn't have a spec|.*environment's spec")
        check_env(turns(), skip_render_check=True)
    env = turns()
    env.game.__dict__.pop("gate")  # an event has a lock, which cannot be copied
    env.step(calls(("write", {"text": "a"})))
    for twin in (copy.deepcopy(env), pickle.loads(pickle.dumps(env))):
        twin.step(calls(("write", {"text": "b"})))
        assert twin.game.notes == ["a", "b"] and env.game.notes == ["a"]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: ToolTurns(gymnasium.make("ragen/FrozenLake-v0")), "has no tools; wrap a ToolEnv, or use AgentTurns"),
        (lambda: ToolTurns(Notes(), max_turns=0), "max_turns=0 leaves nothing to play"),
        (lambda: ToolTurns(Notes(), call_format="x"), "call_format='x' is unknown"),
        (lambda: Notes(call_timeout=0), "call_timeout=0 must be a number of seconds above 0"),
        (lambda: Notes(max_result_length=10), "max_result_length=10 leaves no room for a result; use 40 or more"),
    ],
)
def test_wrong_arguments_are_refused(made: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        made()
