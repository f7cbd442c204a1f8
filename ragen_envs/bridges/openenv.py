"""OpenEnv both ways: its servers of text as environments, and these environments as its servers."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import gymnasium

from ragen_envs.arguments import check_integer
from ragen_envs.baselines import default_turns
from ragen_envs.bridges.trl_tools import Maker
from ragen_envs.calling.env import MAX_CALL_LENGTH, cut
from ragen_envs.text_env import AnyText, TextEnv
from ragen_envs.turns import AgentTurns

_MISSING = "OpenEnv is not installed; pip install 'ragen-trl[openenv]'"


class OpenEnvText(TextEnv):
    """The environment of an OpenEnv server, if its actions and observations are text.

    One field of an action and one of an observation are the text; other fields keep their defaults. Each object is a
    session of its own, which `close` ends.

    ## Starting State
    The server gets ``reset(seed=s)`` and, if the option was given, `outcome_seed`.

    ## Rewards
    The server's; 0 where it gives none, and at a reset.

    ## Episode End
    OpenEnv has one flag, `done`. It is `truncated` if the observation has a true field of that name, else `terminated`.

    ## Information
    `success`: the field of the observation, else that the episode ended with a reward of 1 or more. `env_info`: the
    observation's fields and `metadata`.
    """

    idle_info: ClassVar[Mapping[str, Any]] = {"env_info": {}}
    instruction: str = ""

    def __init__(
        self,
        base_url: str,
        *,
        action: str = "text",
        observation: str = "text",
        instruction: str = "Answer the environment, whose state says what it wants.",
        timeout: float = 60.0,
        max_observation_length: int = 8000,
        render_mode: str | None = None,
    ) -> None:
        """Connects to a server.

        Args:
            base_url: Its address, such as ``"http://localhost:8000"``.
            action: The field of an action that is the text, such as ``"message"``.
            observation: The field of an observation that is the text.
            instruction: The first line that a model sees.
            timeout: Seconds that the server may take for an answer.
            max_observation_length: Characters of an observation that are shown, at least 40.
            render_mode: "ansi", "rgb_array" or None.

        Raises:
            ImportError: Without OpenEnv.
            RuntimeError: If the server does not answer, now or later, or has no room for another session.
            ValueError: At a reset, if an observation has no such field of text.
        """
        try:
            from openenv.core import GenericEnvClient  # type: ignore[import-not-found, unused-ignore]
        except ImportError as error:
            raise ImportError(_MISSING) from error
        check_integer("max_observation_length", max_observation_length, 40, "leaves no room for an observation")
        super().__init__(render_mode=render_mode)
        self.observation_space = AnyText(max_observation_length, min_length=0)
        self.action_space = AnyText(MAX_CALL_LENGTH, min_length=0)
        self._url, self.instruction, self._most = base_url, instruction, max_observation_length
        self._action_field, self._shown_field = action, observation
        self._env_info: Mapping[str, Any] = {}
        # Its messages are JSON objects, so that no classes of the environment are needed.
        self._client = GenericEnvClient(base_url=base_url, message_timeout_s=timeout).sync()
        self._ask(self._client.connect)

    @property
    def task(self) -> str:
        """What the first observation says."""
        return self._task

    def close(self) -> None:
        """Ends the session."""
        self._client.close()

    def _parse_action(self, text: str) -> str | None:
        return text.strip() or None

    def _start(self, options: Mapping[str, Any]) -> str:
        seed = int(self.np_random.integers(2**31)) if self._reset_seed is None else self._reset_seed
        self._task = self._read(self._ask(self._client.reset, seed=seed, **options))
        return self._task

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        result = self._ask(self._client.step, {self._action_field: action})
        text, over, reward = self._read(result), bool(result.done), float(result.reward or 0.0)
        self._truncated = over and bool(result.observation.get("truncated", False))
        success = bool(result.observation.get("success", over and reward >= 1))
        info = {"success": success, "action_is_effective": True, "env_info": self._env_info}
        return text, reward, over and not self._truncated, info

    def _idle(self) -> dict[str, Any]:
        return {**super()._idle(), "env_info": self._env_info}

    def _read(self, result: Any) -> str:
        text = result.observation.get(self._shown_field)
        if not isinstance(text, str):
            raise ValueError(
                f"the field {self._shown_field!r} of the observations at {self._url} is {text!r:.100} and not text; "
                f"name another with observation=, of {', '.join(result.observation)}"
            )
        self._env_info = {**result.observation, "metadata": result.metadata or {}}
        return cut(text, self._most)

    def _ask(self, ask: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            return ask(*arguments, **options)
        except Exception as error:  # the server's errors, a closed socket and a timeout have no common class
            raise RuntimeError(
                f"the OpenEnv server at {self._url} gives no answer: {str(error) or type(error).__name__}; start it, "
                "or look at its log. If it has no session left, raise its max_concurrent_envs; if it takes other "
                "actions, name their field of text with action="
            ) from error


def openenv_environment(env: str | Maker) -> tuple[type[Any], type[Any], type[Any]]:
    """Makes the first arguments of OpenEnv's `create_app`: the classes of environment, actions and observations.

    An action's `text` is a model's whole reply. An observation has the next user message as `text`, and `reward`,
    `done`, `success` and `truncated`. ``reset(seed=…, outcome_seed=…)`` works as everywhere here.

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
        state: Any = env_server.State()  # of no episode yet

        def __init__(self) -> None:
            super().__init__()
            made = gymnasium.make(env) if isinstance(env, str) else env()
            self._turns = made if isinstance(made, AgentTurns) else AgentTurns(made, **default_turns(made))

        def reset(self, seed: int | None = None, episode_id: str | None = None, outcome_seed: int | None = None) -> Any:
            options = None if outcome_seed is None else {"outcome_seed": outcome_seed}
            message, info = self._turns.reset(seed=seed, options=options)
            self.state = env_server.State(episode_id=episode_id, step_count=0)
            return TextObservation(text=message, success=info["success"])

        def step(self, action: Any, timeout_s: float | None = None) -> Any:
            message, reward, terminated, truncated, info = self._turns.step(action.text)
            self.state.step_count += 1
            over = bool(terminated or truncated)
            told = {"success": info["success"], "truncated": bool(truncated)}
            return TextObservation(text=message, reward=reward, done=over, **told)

        def close(self) -> None:
            self._turns.close()

    return Turns, TextAction, TextObservation
