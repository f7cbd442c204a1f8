"""The time that benchmarks/rollout_stepping.py measures, and the play in which it measures."""

import time
from functools import partial

import pytest
import rollout_stepping as script

from ragen_trl import StarPOConfig
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.trainers import LAKE, SMALL, TOKENIZER, small_model


def test_the_time_of_the_environments_is_that_of_their_batches() -> None:
    executor = script.Timed(0)
    began = time.perf_counter()
    assert executor.run([partial(time.sleep, 0.02)] * 3) == [None] * 3
    assert executor.run([partial(int, "7")]) == [7]
    assert 0.06 <= executor.seconds <= time.perf_counter() - began


def test_a_rehearsal_plays_valid_actions_in_as_many_sampled_tokens() -> None:
    args = StarPOConfig(output_dir="unused", **SMALL)
    envs = [make_turns(LAKE, args) for _ in range(4)]
    chat = make_chat(TOKENIZER, envs[0], args)
    model = TransformersPolicy(small_model(), chat, Sampling(40))
    played = play(envs, script.Rehearsal(model, chat), [Start(row, sampling_seed=row) for row in range(4)])
    turns = [turn for trajectory in played for turn in trajectory.turns]
    assert all(turn.info["action_is_valid"] for turn in turns)
    assert all(1 <= len(turn.reply_ids) == len(turn.logprobs) <= len(chat.encode_reply(turn.reply)) for turn in turns)
    assert sum(len(turn.reply_ids) == len(chat.encode_reply(turn.reply)) for turn in turns) > len(turns) / 2


def test_shares_are_of_the_rollout_in_which_they_were_measured() -> None:
    row = script.measure_computing("ragen/FrozenLake-v0", 2, 3)
    assert (row["env"], row["rows"]) == ("ragen/FrozenLake-v0", 3)
    assert 1 <= row["turns"] <= 3
    for name in ("threads", "no threads"):
        assert len(row["share"][name]["rounds"]) == 2
        assert all(0 < share < 1 for share in row["share"][name]["rounds"])


def test_waits_add_up_only_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "WAIT", 0.02)
    found = script.measure_waiting(1, 8)["seconds_a_turn"]
    assert found["one by one"]["median"] >= 8 * script.WAIT
    assert script.WAIT <= found["side by side"]["median"] < 8 * script.WAIT
