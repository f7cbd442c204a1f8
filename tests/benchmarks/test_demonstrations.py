"""The lessons of the questions: what their warm starts learn from, under which limits, in which games."""

from collections import Counter
from pathlib import Path

from learning import demonstrations
from learning.demonstrations import FIVE_TURNS, FIXED_TOTAL

from ragen_trl.config.recipes import defaults
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.imitation.fine_tuning import WarmStartConfig
from ragen_trl.rollout.seeds import WARM_START

LAKE = {"is_slippery": False, "frozen_prob": 0.9}
NEWEST = 28  # tokens from the title of a turn to the reply: the map and the text around it


def play_args(folder: Path, env: str, **options: object) -> StarPOConfig:
    return StarPOConfig(output_dir=str(folder), seed=0, **{**defaults(env, None), **options})


def test_a_fixed_total_takes_more_turns_the_fewer_actions_a_turn_has() -> None:
    assert [limit["max_turns"] for limit in FIXED_TOTAL.values()] == [10, 5, 4, 3, 2, 2, 2]
    assert {limit["max_actions"] for limit in FIXED_TOTAL.values()} == {10}
    assert [limit["max_actions"] for limit in FIVE_TURNS.values()] == [5, 10, 15, 20, 25, 30, 35]
    assert {limit["max_turns"] for limit in FIVE_TURNS.values()} == {5}
    assert [each for each in FIXED_TOTAL if FIXED_TOTAL[each] == FIVE_TURNS[each]] == [2]


def test_shares_are_consecutive_and_leave_nothing_out() -> None:
    parts = demonstrations.shares(11, [2, 1, 1])
    assert [seed for part in parts for seed in part] == list(range(WARM_START, WARM_START + 11))
    assert [len(part) for part in parts] == [5, 2, 4]


def test_every_limit_is_shown_and_its_turns_are_full_until_the_end(tmp_path: Path) -> None:
    args = play_args(tmp_path, "ragen/FrozenLake-v0", env_kwargs=LAKE)
    _, episodes = demonstrations.every_limit("ragen/FrozenLake-v0", args, WarmStartConfig(demonstrations=26, noise=0.5))
    assert sorted(episode.seed for episode in episodes) == list(range(WARM_START, WARM_START + 26))
    shown = Counter(
        next(line for line in episode.turns[0].observation.splitlines() if line.startswith("Limits"))
        for episode in episodes
    )
    assert len(shown) == 13
    assert set(shown.values()) == {2}
    assert "Limits: actions per turn 7, actions in all 10, turns 2" in shown
    assert "Limits: actions per turn 7, actions in all 35, turns 5" in shown
    for episode, limit in zip(episodes[:14:2], FIXED_TOTAL.values(), strict=True):
        for turn in episode.turns[:-1]:  # the last may end on the goal or in a hole
            assert turn.info["num_actions"] == limit["max_actions_per_turn"]
            assert turn.info["surplus_actions"] == ()


def test_a_model_reads_its_limits_and_can_write_the_longest_turn(tmp_path: Path) -> None:
    args = play_args(tmp_path, "ragen/FrozenLake-v0", env_kwargs=LAKE)
    tokenizer, episodes = demonstrations.every_limit(
        "ragen/FrozenLake-v0", args, WarmStartConfig(demonstrations=13, noise=0.5)
    )
    firsts = [episode.turns[0].prompt_ids for episode in episodes]
    for prompt in firsts:  # a map is as far from its answer under all limits
        title = tokenizer.decode([prompt[-NEWEST]])
        assert title.startswith("Turn 1 of ")
    assert len({tuple(prompt) for prompt in firsts}) == 13
    later = [turn for episode in episodes for turn in episode.turns[1:]]
    assert len({len(turn.prompt_ids) for turn in later}) == 1
    longest = demonstrations.played(
        "ragen/FrozenLake-v0",
        demonstrations.changed(args, FIVE_TURNS[7]),
        tokenizer,
        lambda turns, random: turns.format_reply(["Right"] * 7),
        range(WARM_START, WARM_START + 1),
    )
    assert len(longest[0].turns[0].reply_ids) <= args.max_reply_length


def test_other_games_have_a_tenth_each_and_all_fit_into_the_context(tmp_path: Path) -> None:
    args = play_args(tmp_path, "ragen/Sokoban-v0", max_turns=5, max_actions_per_turn=2, max_actions=10)
    tokenizer, episodes = demonstrations.several_games(
        "ragen/Sokoban-v0", args, WarmStartConfig(demonstrations=20, noise=1.0)
    )
    assert len(episodes) == 20
    maps = [episode.turns[0].state.splitlines() for episode in episodes]
    assert Counter(len(rows) for rows in maps) == {5: 14, 6: 2, 8: 2, 4: 2}
    assert sum("W" in rows[0] for rows in maps) == 2
    for rows in maps:  # a place on the map is a place in the sequence
        assert [len(tokenizer.tokenize(row)) for row in rows] == [len(row) for row in rows]
