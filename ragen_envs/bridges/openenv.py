"""OpenEnv (``pip install openenv``) both ways: its servers as environments, and these environments as its servers.

A server whose actions are text or tools is played as any environment here:

    turns = AgentTurns(OpenEnvText("http://localhost:8000"), max_actions_per_turn=1)
    turns = ToolTurns(OpenEnvTools("http://localhost:8000", task="Echo the word."))

As a server, an environment takes whole replies and answers with user messages:

    app = openenv.core.env_server.create_app(*openenv_environment("ragen/FrozenLake-v0"), max_concurrent_envs=64)
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import httpx

from ragen_envs.bridges.foreign import ForeignEnvError, ForeignText, ForeignTools, Reaction, Success, solved
from ragen_envs.bridges.making import Maker, make_turns
from ragen_envs.calling.tool import Call, as_text, read_action

_MISSING = "OpenEnv is not installed; pip install 'ragen-trl[openenv]'"
_COMMON_FIELDS = ("metadata", "done", "reward")  # of every action and observation


class OpenEnvText(ForeignText):
    """The environment of an OpenEnv server, if its actions and observations are text.

    ## Description
    Which field of an action and of an observation is the text, the server's schema says where only one can be meant.
    Each object is a session of its own, over a WebSocket that `close` ends.

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
        action: str | None = None,
        observation: str | None = None,
        instruction: str = "Answer the environment, whose state says what it wants.",
        success: Success = solved,
        timeout: float = 60.0,
        max_observation_length: int = 8000,
        render_mode: str | None = None,
    ) -> None:
        """Connects to a server.

        Args:
            base_url: Its address, such as ``"http://localhost:8000"``.
            action: The field of an action that is the text; None for the only one.
            observation: The field of an observation that is the text; None for the only one.
            instruction: The first line that a model sees.
            success: Says whether the task is solved, from reward, end and info of a step.
            timeout: Seconds that the server may take for an answer.
            max_observation_length: Characters of an observation that are shown, at least 40.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ImportError: Without OpenEnv.
            ForeignEnvError: If there is no server, or it has no room for another session.
            ValueError: If the server's actions or observations are no text.
        """
        super().__init__(
            instruction=instruction,
            success=success,
            max_observation_length=max_observation_length,
            render_mode=render_mode,
        )
        self._session = _Session(base_url, timeout)
        try:
            schemas = self._session.schemas()
            self._action = _text_field(schemas["action"], "action", action, base_url)
            self._shown_field = _text_field(schemas["observation"], "observation", observation, base_url)
        except BaseException:
            self._session.close()
            raise

    def close(self) -> None:
        """Ends the session."""
        self._session.close()

    def _begin(self, seed: int, outcome_seed: int | None) -> Reaction:
        return self._read(self._session.reset(seed, outcome_seed))

    def _answer(self, action: str) -> Reaction:
        return self._read(self._session.step({self._action: action}))

    def _read(self, result: Any) -> Reaction:
        return _reaction(result, str(result.observation.get(self._shown_field, "")))


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
        self._tools = tuple(
            self._described(tool["name"], tool.get("description") or "", tool.get("input_schema") or {})
            for tool in listed
        )
        return _reaction(result, self._given_task or self._told_task(result))

    def _told_task(self, result: Any) -> str:
        fields = {**(result.metadata or {}), **result.observation}
        texts = [text for name, text in fields.items() if name not in _COMMON_FIELDS and isinstance(text, str)]
        if len(texts) != 1:
            raise ValueError(
                f"the OpenEnv server at {self._session.url} does not say in one text what should be done; its "
                f"observation has the fields {sorted(fields)}; pass task="
            )
        return texts[0]

    def _answer(self, action: str) -> Reaction:
        said = read_action(action)
        if not isinstance(said, Call):
            return Reaction("The episode is over.", terminated=True)
        call = {"type": "call_tool", "tool_name": said.name, "arguments": dict(said.arguments)}
        result = self._session.step(call)
        fault = result.observation.get("error")
        if fault:
            return _reaction(result, f"Error: {fault['message']}", tool_failed=True)
        return _reaction(result, _result_text(result.observation.get("result")))


class _Session:
    """A connection to a server. Messages are JSON objects, so that no classes of the environment are needed."""

    def __init__(self, url: str, timeout: float) -> None:
        try:
            from openenv.core import GenericEnvClient  # type: ignore[import-not-found, unused-ignore]
            from openenv.core.client_types import StepResult  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ImportError(_MISSING) from error
        if "metadata" not in {each.name for each in dataclasses.fields(StepResult)}:
            raise ImportError("this OpenEnv (openenv-core?) is too old; pip install 'ragen-trl[openenv]'")
        if not timeout > 0:
            raise ValueError(f"timeout={timeout!r} must be a number of seconds above 0")
        self.url, self._timeout = url, timeout
        self._client = GenericEnvClient(base_url=url, message_timeout_s=timeout).sync()
        try:
            self._client.connect()
        except Exception as error:  # a socket's, a timeout's or the handshake's
            self._client.close()
            raise ForeignEnvError(f"no OpenEnv server answers at {url}: {error}; start it, or correct it") from error

    def schemas(self) -> dict[str, Any]:
        """JSON schemas of actions and observations."""
        address = self.url.replace("ws://", "http://", 1).replace("wss://", "https://", 1).rstrip("/")
        try:
            answer = httpx.get(f"{address}/schema", timeout=self._timeout).raise_for_status()
        except httpx.HTTPError as error:
            raise ForeignEnvError(f"the OpenEnv server at {self.url} does not tell its schema: {error}") from error
        return dict(answer.json())

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
            said = str(error) or type(error).__name__
            remedy = "look at its log; if it has no session left, raise its max_concurrent_envs"
            if "VALIDATION_ERROR" in said:  # by OpenEnv's own code; its actions have other fields
                remedy = "it takes other actions: OpenEnvTools is for servers with tools, OpenEnvText for a text field"
            raise ForeignEnvError(f"the OpenEnv server at {self.url} gives no answer: {said}; {remedy}") from error


def _text_field(schema: Mapping[str, Any], side: str, given: str | None, url: str) -> str:
    """The name of the field that is the text of an action or an observation."""
    fields = {name: kind for name, kind in schema["properties"].items() if name not in _COMMON_FIELDS}
    texts = [name for name, kind in fields.items() if kind.get("type") == "string"]
    needed = [name for name in schema.get("required", ()) if side == "action" and name in fields]
    found = given if given is not None else (texts[0] if len(texts) == 1 else None)
    if found in texts and set(needed) <= {found}:
        return str(found)
    if "tool_name" in fields:
        raise ValueError(f"the OpenEnv server at {url} has tools; use OpenEnvTools")
    said = f"the fields of its {side} are {', '.join(fields) or 'none'}"
    if found in texts:
        raise ValueError(
            f"the OpenEnv server at {url} wants more than text: of its {side}, {', '.join(needed)} are needed"
        )
    if given is None and texts:
        raise ValueError(f"the OpenEnv server at {url} has several texts: {said}; say which with {side}=")
    raise ValueError(f"the OpenEnv server at {url} has no such text: {said}; only text can be played")


def _reaction(result: Any, text: str, tool_failed: bool = False) -> Reaction:
    cut = bool(result.observation.get("truncated", False))
    info = {**result.observation, "metadata": result.metadata or {}}
    over, reward = bool(result.done), float(result.reward or 0.0)
    return Reaction(text, reward, over and not cut, over and cut, info, tool_failed)


def _result_text(result: Any) -> str:
    """The text of a call's result, which has the form of the Model Context Protocol, or is the plain value."""
    if isinstance(result, Mapping) and isinstance(result.get("content"), list):
        return "\n".join(block.get("text", f"[{block.get('type')}]") for block in result["content"])
    return as_text(result)


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
    action_type, observation_type = _openenv_messages()
    from openenv.core import env_server  # type: ignore[import-not-found, unused-ignore]

    class Turns(env_server.Environment):
        SUPPORTS_CONCURRENT_SESSIONS = True

        def __init__(self) -> None:
            super().__init__()
            self._turns = make_turns(env)
            self._state = env_server.State()

        def reset(self, seed: int | None = None, episode_id: str | None = None, outcome_seed: int | None = None) -> Any:
            options = None if outcome_seed is None else {"outcome_seed": outcome_seed}
            message, info = self._turns.reset(seed=seed, options=options)
            self._state = env_server.State(episode_id=episode_id, step_count=0)
            return observation_type(text=message, success=info["success"])

        def step(self, action: Any, timeout_s: float | None = None) -> Any:
            message, reward, terminated, truncated, info = self._turns.step(action.text)
            self._state.step_count += 1
            return observation_type(
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

    return Turns, action_type, observation_type


def _openenv_messages() -> tuple[type[Any], type[Any]]:
    """The classes of actions and observations, which are Pydantic models."""
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

    return TextAction, TextObservation
