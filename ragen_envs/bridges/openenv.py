"""OpenEnv (``pip install openenv``) both ways: its servers as environments, and these environments as its servers.

A server whose actions are text or tools is played as any environment here:

    turns = AgentTurns(OpenEnvText("http://localhost:8000"), max_actions_per_turn=1)
    turns = ToolTurns(OpenEnvTools("http://localhost:8000", task="Echo the word."))

As a server, an environment takes whole replies and answers with user messages:

    app = openenv.core.env_server.create_app(*openenv_environment("ragen/FrozenLake-v0"), max_concurrent_envs=64)
"""

from collections.abc import Mapping
from typing import Any

import gymnasium

from ragen_envs.any_text import AnyText
from ragen_envs.arguments import check_integer
from ragen_envs.baselines import default_turns
from ragen_envs.bridges.foreign import Foreign, ForeignEnvError, ForeignTools, Reaction, Success, solved
from ragen_envs.bridges.trl_tools import Maker
from ragen_envs.calling.env import MAX_CALL_LENGTH
from ragen_envs.calling.results import content_text
from ragen_envs.calling.tool import Call, read_action
from ragen_envs.turns import AgentTurns

_MISSING = "OpenEnv is not installed; pip install 'ragen-trl[openenv]'"
_COMMON_FIELDS = ("metadata", "done", "reward")  # of every action and observation


class OpenEnvText(Foreign):
    """The environment of an OpenEnv server, if its actions and observations are text.

    ## Description
    One field of an action and one of an observation are the text; other fields keep their defaults. Each object is a
    session of its own, over a WebSocket that `close` ends.

    ## Starting State
    The server gets ``reset(seed=s)`` and, if the option was given, `outcome_seed`. An environment without randomness
    ignores them. A reward that comes with a reset is dropped.

    ## Rewards
    The server's; 0 where it gives none.

    ## Episode End
    OpenEnv has one flag, `done`. It is `truncated` if the observation has a true field of that name, else `terminated`.

    ## Information
    `success`: the field of the observation, else that the episode ended with a reward of 1 or more. `env_info`: the
    observation's fields and `metadata`.

    ## Arguments
    See `__init__`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        action: str = "text",
        observation: str = "text",
        instruction: str = "Answer the environment, whose state says what it wants.",
        success: Success = solved,
        timeout: float = 60.0,
        max_observation_length: int = 8000,
        render_mode: str | None = None,
    ) -> None:
        """Connects to a server.

        Args:
            base_url: Its address, such as ``"http://localhost:8000"``.
            action: The field of an action that is the text, such as ``"message"``; the environments of this package
                have "text" on both sides.
            observation: The field of an observation that is the text.
            instruction: The first line that a model sees.
            success: Says whether the task is solved, from reward, end and info of a step.
            timeout: Seconds that the server may take for an answer.
            max_observation_length: Characters of an observation that are shown, at least 40.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ImportError: Without OpenEnv.
            ForeignEnvError: If there is no server, or it has no room for another session.
            ValueError: If the length is too small; at a reset, if an observation has no such field of text.
        """
        check_integer("max_observation_length", max_observation_length, 40, "leaves no room for an observation")
        super().__init__(render_mode=render_mode)
        self.observation_space = AnyText(max_observation_length, min_length=0)
        self.action_space = AnyText(MAX_CALL_LENGTH, min_length=0)
        self._instruction, self._is_success = instruction, success
        self._action, self._shown_field = action, observation
        self._session = _Session(base_url, timeout)

    @property
    def instruction(self) -> str:
        """The task, as given."""
        return self._instruction

    @property
    def task(self) -> str:
        """What the first observation says."""
        return self._task

    def close(self) -> None:
        """Ends the session."""
        self._session.close()

    def _parse_action(self, text: str) -> str | None:
        return text.strip() or None

    def _begin(self, seed: int, outcome_seed: int | None) -> Reaction:
        return self._read(self._session.reset(seed, outcome_seed))

    def _answer(self, action: str) -> Reaction:
        return self._read(self._session.step({self._action: action}))

    def _read(self, result: Any) -> Reaction:
        text = result.observation.get(self._shown_field)
        if not isinstance(text, str):
            raise ValueError(
                f"the field {self._shown_field!r} of the observations at {self._session.url} is {text!r:.100} and not "
                f"text; name another with observation=, of {', '.join(result.observation)}"
            )
        return _reaction(result, text)


class OpenEnvTools(ForeignTools):
    """The environment of an OpenEnv server with tools, as its `MCPEnvironment` makes one.

    ## Description
    The server's tools are listed after each reset. Words instead of a call end the episode, because such a server has
    no action for them.

    ## Starting State, Rewards, Episode End
    As in `OpenEnvText`.

    ## Information
    As in `OpenEnvText`, and `tool` and `tool_failed`.

    ## Arguments
    See `__init__`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        task: str | None = None,
        purpose: str = "Carry out the task by calling tools.",
        success: Success = solved,
        timeout: float = 60.0,
        max_result_length: int = 2000,
        render_mode: str | None = None,
    ) -> None:
        """Connects to a server.

        Args:
            base_url: Its address, such as ``"http://localhost:8000"``.
            task: What should be done; None if the observation after a reset says it, in a field of text or in the
                metadata's.
            purpose: What every task is about.
            success: Says whether the task is solved, from reward, end and info of a step.
            timeout: Seconds that the server may take for an answer.
            max_result_length: Characters of a result that are shown, at least 40.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ImportError: Without OpenEnv.
            ForeignEnvError: If there is no server, or it has no room for another session.
        """
        super().__init__(purpose=purpose, success=success, max_result_length=max_result_length, render_mode=render_mode)
        self._given_task = task
        self._session = _Session(base_url, timeout)

    def close(self) -> None:
        """Ends the session."""
        self._session.close()

    def _begin(self, seed: int, outcome_seed: int | None) -> Reaction:
        result = self._session.reset(seed, outcome_seed)
        listed = self._session.step({"type": "list_tools"}).observation.get("tools")
        if not listed:
            raise ValueError(f"the OpenEnv server at {self._session.url} lists no tools; if it reads text: OpenEnvText")
        self.tools = [
            self._described(tool["name"], tool.get("description"), tool.get("input_schema")) for tool in listed
        ]
        fields = {**(result.metadata or {}), **result.observation}
        texts = [text for name, text in fields.items() if name not in _COMMON_FIELDS and isinstance(text, str)]
        if self._given_task is None and len(texts) != 1:
            raise ValueError(
                f"the OpenEnv server at {self._session.url} does not say in one text what should be done; its "
                f"observation has the fields {sorted(fields)}; pass task="
            )
        return _reaction(result, self._given_task or texts[0])

    def _answer(self, action: str) -> Reaction:
        said = read_action(action)
        if not isinstance(said, Call):
            return Reaction("The episode is over.", terminated=True)
        result = self._session.step({"type": "call_tool", "tool_name": said.name, "arguments": dict(said.arguments)})
        fault = result.observation.get("error")
        if fault:
            return _reaction(result, f"Error: {fault['message']}", tool_failed=True)
        return _reaction(result, content_text(result.observation.get("result")))


class _Session:
    """A connection to a server. Messages are JSON objects, so that no classes of the environment are needed."""

    def __init__(self, url: str, timeout: float) -> None:
        try:
            from openenv.core import GenericEnvClient  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ImportError(_MISSING) from error
        self.url = url
        self._client = GenericEnvClient(base_url=url, message_timeout_s=timeout).sync()
        try:
            self._client.connect()
        except Exception as error:  # a socket's, a timeout's or the handshake's
            self._client.close()
            raise ForeignEnvError(f"no OpenEnv server answers at {url}: {error}; start it, or correct it") from error

    def reset(self, seed: int, outcome_seed: int | None) -> Any:
        """A new episode; OpenEnv's `StepResult` with an observation that is a dict."""
        options = {} if outcome_seed is None else {"outcome_seed": outcome_seed}
        return self._asked(self._client.reset, seed=seed, **options)

    def step(self, action: Mapping[str, Any]) -> Any:
        """What comes of an action."""
        return self._asked(self._client.step, dict(action))

    def close(self) -> None:
        """Ends the session; a second time does nothing."""
        self._client.close()

    def _asked(self, ask: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return ask(*arguments, **options)
        except Exception as error:  # the server's errors, a closed socket and a timeout have no common class
            raise ForeignEnvError(
                f"the OpenEnv server at {self.url} gives no answer: {str(error) or type(error).__name__}; look at its "
                "log. If it has no session left, raise its max_concurrent_envs; if it takes other actions, use "
                "OpenEnvTools for one with tools, OpenEnvText for one with a field of text"
            ) from error


def _reaction(result: Any, text: str, tool_failed: bool = False) -> Reaction:
    cut = bool(result.observation.get("truncated", False))
    info = {**result.observation, "metadata": result.metadata or {}}
    over, reward = bool(result.done), float(result.reward or 0.0)
    return Reaction(text, reward, over and not cut, over and cut, info, tool_failed)


def openenv_environment(env: str | Maker) -> tuple[type[Any], type[Any], type[Any]]:
    """Makes the first arguments of OpenEnv's `create_app`: the classes of environment, actions and observations.

    An action's `text` is a model's whole reply. An observation has the next user message as `text`, and `reward`,
    `done`, `success` and `truncated`. ``reset(seed=…, outcome_seed=…)`` works as everywhere here. Each session has its
    own environment; OpenEnv keeps sessions by WebSocket, not by plain requests.

    Args:
        env: A Gymnasium id, or a function that makes a text environment, or an `AgentTurns` with its limits.

    Raises:
        ImportError: Without OpenEnv.
    """
    try:
        from openenv.core import env_server  # type: ignore[import-not-found, unused-ignore]
    except ImportError as error:
        raise ImportError(_MISSING) from error

    class TextAction(env_server.Action):
        text: str

    class TextObservation(env_server.Observation):
        text: str
        success: bool
        truncated: bool = False

    class Turns(env_server.Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            made = gymnasium.make(env) if isinstance(env, str) else env()
            self._turns = made if isinstance(made, AgentTurns) else AgentTurns(made, **default_turns(made.spec))
            self._state = env_server.State()

        def reset(self, seed: int | None = None, episode_id: str | None = None, outcome_seed: int | None = None) -> Any:
            options = None if outcome_seed is None else {"outcome_seed": outcome_seed}
            message, info = self._turns.reset(seed=seed, options=options)
            self._state = env_server.State(episode_id=episode_id, step_count=0)
            return TextObservation(text=message, success=info["success"])

        def step(self, action: Any, timeout_s: float | None = None) -> Any:
            message, reward, terminated, truncated, info = self._turns.step(action.text)
            self._state.step_count += 1
            return TextObservation(
                text=message,
                reward=reward,
                done=bool(terminated or truncated),
                success=info["success"],
                truncated=bool(truncated),
            )

        @property
        def state(self) -> Any:
            return self._state

        def close(self) -> None:
            self._turns.close()

    return Turns, TextAction, TextObservation
