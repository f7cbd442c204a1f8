"""Episodes that others played, as demonstrations for a local model: which are kept, and in what tokens."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from ragen_envs import AgentTurns, demonstration
from ragen_trl import StarPOConfig
from ragen_trl.imitation.demonstrations import demonstrations_from
from ragen_trl.imitation.fine_tuning import WarmStartConfig, to_examples, warm_start
from ragen_trl.policies.api import ApiCache, ApiClient, ApiPolicy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_model
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import EnvPool, env_specs
from ragen_trl.rollout.interfaces import Start, TurnEnv
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.openai_server import Fault, OpenAIServer, Payload

LAKE = "ragen/FrozenLake-v0"
SEEDS = range(20_000, 20_012)


def config(**values: Any) -> StarPOConfig:
    quiet = {"bf16": False, "use_cpu": True, "report_to": "none", "think": False}
    lake = {"env_kwargs": {"is_slippery": False, "frozen_prob": 0.9}}
    return StarPOConfig(output_dir="unused", **{**quiet, **lake, **values})


def half_right(env: TurnEnv, random: np.random.Generator) -> str:
    """Two actions of the oracle, or of chance."""
    assert isinstance(env, AgentTurns)
    return env.format_reply(demonstration(env, env.actions_left, 2, random, 0.5))


@pytest.fixture
def chat(tiny_tokenizer: PreTrainedTokenizerFast) -> Chat:
    return Chat(tiny_tokenizer, reply_prefix="<answer>")


def everything(trajectory: Trajectory) -> bool:
    return True


def collect(chat: Chat, script: Any = half_right, **options: Any) -> list[Trajectory]:
    args = options.pop("args", None) or config()
    return demonstrations_from(ScriptedPolicy(script), LAKE, args, chat, SEEDS, **options)


@pytest.mark.parametrize("taught_with_tokens", [False, True])
@pytest.mark.parametrize("contexts", [{"window_turns": 1}, {"window_turns": 2}, {"context": "actions_so_far"}], ids=str)
def test_contexts_are_those_of_the_model_that_learns(
    chat: Chat, tiny_tokenizer: PreTrainedTokenizerFast, contexts: dict[str, Any], taught_with_tokens: bool
) -> None:
    """Regression: a text policy's had one context that grew; another model's kept contexts in its own tokens."""
    args = config(max_actions_per_turn=1, **contexts)
    teacher = Chat(tiny_tokenizer, system_prompt="You teach.", reply_prefix="<answer>") if taught_with_tokens else None
    told = demonstrations_from(ScriptedPolicy(half_right, teacher), LAKE, args, chat, SEEDS, everything)
    pool = EnvPool(args)
    starts = [Start.drawn(seed, (args.seed, seed)) for seed in SEEDS]
    played = pool.play(pool.take(env_specs(LAKE, args) * len(starts)), ScriptedPolicy(half_right, chat), starts)
    assert [trajectory.turns for trajectory in told] == [trajectory.turns for trajectory in played]
    assert max(len(trajectory.segments) for trajectory in told) > 2
    assert all(trajectory.next_context_ids is None and not trajectory.next_prompt_ids for trajectory in told)


def test_a_model_behind_an_api_teaches_and_is_asked_once(tmp_path: Path, chat: Chat) -> None:
    """The episodes of a failing row are never kept, whatever `keep` says."""

    def fault(payload: Payload, attempt: int) -> Fault | None:
        return Fault(400) if payload["messages"] == server.asked[0]["messages"] else None

    def collected() -> list[Trajectory]:
        client = ApiClient(server.url, "", retries=0, concurrency=1)
        with ApiPolicy("m", Sampling(50), client, cache=ApiCache(tmp_path / "cache.sqlite")) as policy:
            return demonstrations_from(policy, LAKE, config(max_turns=3), chat, SEEDS, everything)

    with OpenAIServer(lambda payload: "<answer>Down || Right</answer>", fault) as server:
        first = collected()
        asked = len(server.asked)
        again = collected()
    assert first == again
    assert [trajectory.seed for trajectory in first] == list(SEEDS)[1:]
    assert len(server.asked) == asked + 1  # what failed
    assert {turn.reply for trajectory in first for turn in trajectory.turns} == {"<answer>Down || Right</answer>"}


def test_warm_start_learns_from_ready_episodes(
    tmp_path: Path, chat: Chat, tiny_tokenizer: PreTrainedTokenizerFast, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []

    def spy(trajectories: Any) -> Any:
        seen.extend(trajectories)
        return to_examples(trajectories)

    monkeypatch.setattr("ragen_trl.imitation.fine_tuning.to_examples", spy)
    ready = collect(chat)
    model, learning = build_tiny_model(tiny_tokenizer, hidden_size=32, num_layers=1), WarmStartConfig(demo_batch_size=4)
    folder = warm_start(model, tiny_tokenizer, LAKE, config(), learning, tmp_path / "m", ready)
    note = json.loads((folder / "warm_start.json").read_text())
    assert note == {"demonstrations": len(ready), "successes": len(ready), "updates": -(-len(ready) // 4)}
    assert seen == ready
