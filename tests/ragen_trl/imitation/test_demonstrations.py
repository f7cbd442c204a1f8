"""Episodes that others played, as demonstrations for a local model: which are kept, and in what tokens."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import PreTrainedTokenizerFast

from ragen_envs import AgentTurns, demonstration
from ragen_trl import StarPOConfig
from ragen_trl.imitation.demonstrations import DemonstrationsError, demonstrations_from, in_tokens_of
from ragen_trl.imitation.fine_tuning import WarmStartConfig, to_examples, warm_start
from ragen_trl.policies.api.cache import ApiCache
from ragen_trl.policies.api.client import ApiClient
from ragen_trl.policies.api.policy import ApiPolicy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_model
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.env_specs import env_specs
from ragen_trl.rollout.interfaces import Reply, Start, TurnEnv
from ragen_trl.rollout.seeds import SeedOverlapError
from ragen_trl.trajectory import Trajectory, Turn
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


def test_the_tokens_are_those_of_a_policy_that_plays_with_the_local_chat(chat: Chat) -> None:
    told = collect(chat, keep=everything)
    played = demonstrations_from(ScriptedPolicy(half_right, chat), LAKE, config(), chat, SEEDS, everything)
    assert told == played
    assert [trajectory.seed for trajectory in told] == list(SEEDS)
    assert all(turn.prompt_ids and turn.reply_ids for trajectory in told for turn in trajectory.turns)


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


def test_a_window_does_not_change_which_episodes_fit(chat: Chat) -> None:
    """As in a rollout, where lengths are those of a context that only grows."""
    whole = collect(chat, keep=everything)
    lengths = [len(one.token_ids) - len(one.turns[0].prompt_ids) for one in whole]
    limit = sorted(lengths)[len(lengths) // 2]
    kept = collect(chat, keep=everything, args=config(max_completion_length=limit, window_turns=1))
    assert [one.seed for one in kept] == [s for s, length in zip(SEEDS, lengths, strict=True) if length <= limit]


def test_by_default_only_successes_are_kept(chat: Chat) -> None:
    everyone = collect(chat, keep=everything)
    assert collect(chat) == [trajectory for trajectory in everyone if trajectory.success]
    assert 0 < sum(trajectory.success for trajectory in everyone) < len(everyone)


def test_batches_do_not_change_what_is_played(chat: Chat) -> None:
    assert collect(chat, batch_size=5) == collect(chat)


def test_text_before_the_forced_prefix_is_not_learnt(chat: Chat) -> None:
    def polite(env: TurnEnv, random: np.random.Generator) -> str:
        return "Sure!\n" + half_right(env, random)

    assert collect(chat, polite) == collect(chat)


def test_what_the_local_model_could_not_have_played_is_left_out(chat: Chat, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert collect(chat, lambda env, random: "I will not.", keep=everything) == []
        assert "12 of 12 episodes left out: a reply without '<answer>'" in caplog.text
    whole = collect(chat, keep=everything)
    lengths = [len(t.token_ids) - len(t.turns[0].prompt_ids) for t in whole]
    limit = sorted(lengths)[len(lengths) // 2]
    kept = collect(chat, keep=everything, args=config(max_completion_length=limit))
    assert kept == [t for t, length in zip(whole, lengths, strict=True) if length <= limit]
    assert 0 < len(kept) < len(whole)


def test_a_cut_reply_does_not_teach_to_stop_there(chat: Chat) -> None:
    turns = [Turn((), (), (), "first", "<answer>Lef", 0.0, cut=True), Turn((), (), (), "second", "<answer>Up", 0.0)]
    told = in_tokens_of(chat, Trajectory(tuple(turns), seed=1))
    assert told is not None
    cut, whole = told.turns
    assert chat.end_of_turn_id not in cut.reply_ids
    assert whole.prompt_ids[0] == chat.end_of_turn_id  # closed by the chat, untrained
    assert whole.reply_ids[-1] == chat.end_of_turn_id
    assert [chat.decode_reply(turn.reply_ids) for turn in told.turns] == ["<answer>Lef", "<answer>Up"]


def test_a_reply_cut_before_its_first_token_leaves_its_episode_out(
    tiny_tokenizer: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    """Regression: a warm start refused all demonstrations for one reasoning reply that had used up its tokens."""

    class ThinksTooLong(ScriptedPolicy):
        def reply(self, requests: Any) -> list[Reply]:
            replies = super().reply(requests)
            return [Reply("", cut=True) if row.row == 1 else one for row, one in zip(requests, replies, strict=True)]

    args, chat = config(max_turns=2), Chat(tiny_tokenizer)
    kept = demonstrations_from(ThinksTooLong(half_right), LAKE, args, chat, SEEDS[:4], everything)
    assert [one.seed for one in kept] == [20_000, 20_002, 20_003]
    assert all(turn.reply_ids for one in kept for turn in one.turns)
    assert "1 of 4 episodes left out: a reply without '' or without a token" in caplog.text


def test_seeds_of_evaluation_are_refused(chat: Chat) -> None:
    with pytest.raises(SeedOverlapError, match="seed 17 is for evaluation"):
        demonstrations_from(ScriptedPolicy(half_right), LAKE, config(), chat, [20_000, 17])


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


def test_nothing_to_learn_from_is_named(tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    text_only = [Trajectory((Turn((), (), (), "?", "!", 0.0),), seed=20_003)]
    for ready, words in (([], "no demonstrations"), (text_only, "the episode of seed 20003 has a turn without tokens")):
        model = build_tiny_model(tiny_tokenizer, hidden_size=32, num_layers=1)
        with pytest.raises(DemonstrationsError, match=words):
            warm_start(model, tiny_tokenizer, LAKE, config(), WarmStartConfig(), tmp_path / "m", ready)
    assert list(tmp_path.iterdir()) == []
