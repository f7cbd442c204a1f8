"""What benchmarks/rollout_throughput.py compares samples as much, in the same contexts; the table has what came out."""

import argparse
import functools
from pathlib import Path
from typing import Any

import pytest
import rollout_throughput as script
import torch
from measuring.rollout_candidates import seeds_that_last
from pages.rollouts import throughput_tables

from ragen_trl.policies import transformers as transformers_policy
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer, save_tiny_model


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a script writes goes into a folder of the test."""
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.chdir(tmp_path)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.*:FutureWarning")
def test_every_way_samples_the_same_number_of_tokens_in_the_same_contexts() -> None:
    tokenizer = build_tiny_tokenizer()
    make = functools.partial(script.turns_of, script.LAKE[0], script.LAKE[1], 3)
    options = argparse.Namespace(turns=3, tokens=2, rounds=1)
    game = script.compare(build_tiny_model(tokenizer), tokenizer, make, script.LAKE[2], 4, options, group_size=2)
    assert game["sampled"] == dict.fromkeys(("ours", "generate", "trl"), 4 * 3 * 2)
    assert game["length"]["ours"] == game["length"]["generate"]
    # TRL's contexts lack the forced prefix of 3 replies, and the end that the chat adds to 2 cut ones.
    assert game["length"]["ours"] - game["length"]["trl"] == 3 + 2
    assert len(game["seeds"]) == 2
    assert all(len(rounds) == 1 and rounds[0] > 0 for rounds in game["rounds"].values())
    assert 0 < game["env_share"] < 1


def test_a_pretrained_model_reads_fewer_tokens_where_starts_begin_alike(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(transformers_policy, "_tokens_of_a_pass", lambda model: 16)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    save_tiny_model(tmp_path)
    options = argparse.Namespace(model=tmp_path, turns=2, tokens=3, rounds=1, smoke=True)
    rounds = script.pretrained(options)["rounds"]
    (shared,), (apart,) = rounds["shared"], rounds["apart"]
    assert shared["sampled"] == apart["sampled"] == 4 * 2 * 3
    assert shared["shown"] == apart["shown"]
    assert shared["read"] < apart["read"] < apart["shown"]  # two groups of two: one instruction for both
    assert min(*shared.values(), *apart.values()) > 0


def test_start_states_are_those_in_which_the_script_lasts() -> None:
    make = functools.partial(script.turns_of, "ragen/FrozenLake-v0", {"is_slippery": False, "frozen_prob": 0.6}, 4)
    seeds = seeds_that_last(make, ("Down", "Right"), 4, 5)
    assert seeds != list(range(5))  # some games end early
    for seed in range(max(seeds) + 1):
        env = make()
        env.reset(seed=seed)
        over = [any(env.step(f"<answer>{move}</answer>")[2:4]) for move in ("Down", "Right", "Down")]
        assert any(over) == (seed not in seeds)


def test_a_script_that_always_ends_the_game_is_an_error() -> None:
    make = functools.partial(script.turns_of, "ragen/Bandit-v0", {}, 3)
    with pytest.raises(ValueError, match="ends 201 of 201 games early"):
        seeds_that_last(make, ("Phoenix",), 3, 1)


def test_the_bound_reads_weights_and_half_full_caches_once_a_step() -> None:
    model = build_tiny_model(build_tiny_tokenizer(), hidden_size=16, num_layers=2, num_heads=2)
    game = {"sampled": {"ours": 60}, "trajectories": 4, "length": {"ours": 100.0}, "rounds": {"ours": [0.5]}}
    bound = script.bandwidth_bound(model, game)
    weights = 4 * sum(weight.numel() for weight in model.parameters())
    cache = 4 * 50 * (2 * 2 * 16 * 4)  # rows · half of the tokens · (keys and values · layers · width · bytes)
    assert (bound["weights"], bound["cache"], bound["steps"]) == (weights, cache, 15)
    assert bound["seconds"] == pytest.approx(15 * (weights + cache) / 4.3e12)
    assert bound["arithmetic"].endswith("tokens/s at best; ours 120")


def measured() -> dict[str, Any]:
    """Made-up results."""
    game = {
        "trajectories": 8,
        "turns": 5,
        "length": {"ours": 212.0},
        "env_share": 0.061,
        "rounds": {"ours": [1.0, 2.0, 4.0], "generate": [2.0, 5.0, 9.0], "trl": [4.0, 8.0, 12.0]},
    }
    costs = {"ours": {"10": [1.0, 1.0], "20": [2.0, 2.2]}, "generate": {"10": [1.0, 2.0], "20": [4.0, 8.0]}}
    return {
        "commit": "0123456789abcdef",
        "machine": {"gpu": "a GPU"},
        "tokens": 24,
        "games": {"ragen/Lake": game},
        "turn_cost": {"tokens_added_a_turn": 30, "tokens": 8, "rounds": costs},
        "bound": {"arithmetic": "1 + 1 = 2"},
    }


def test_the_table_has_medians_and_ratios_of_rounds() -> None:
    table = throughput_tables({"cpu": measured(), "gpu": None})
    row = "| `ragen/Lake`: 8 × 5 turns, 212 tokens each | 4.0 | 1.6 (ours 2.2 × (2.0 to 2.5)) "
    assert row + "| 1.0 (ours 4.0 × (3.0 to 4.0)) | 6.1 % of ours |\n" in table
    assert "| 30 tokens shown and 8 sampled a turn | 20 turns cost, in terms of 10 |\n" in table
    assert "| ours | 2.1 × (2.0 to 2.2) |\n| `model.generate` | 4.0 × (4.0 to 4.0) |\n" in table
    assert "24 tokens sampled a turn. Medians of 3 rounds" in table and "Commit `012345678`." in table
    assert table.endswith("**On a GPU**: not run.\n")
    both = throughput_tables({"cpu": None, "gpu": measured()})
    assert both.startswith("**On the CPU**: not run.\n") and "Bound by memory: 1 + 1 = 2." in both
