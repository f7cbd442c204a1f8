"""The lessons of benchmarks/reasoning.py: what their thoughts say, and that nothing else differs between them."""

from pathlib import Path

import gymnasium
import pytest
from learning import scratchpad

from ragen_envs import NoOracleError
from ragen_trl.config.recipes import defaults
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.imitation.fine_tuning import WarmStartConfig, demonstrate
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.rollout.environments import make_chat, make_turns

LAKE = {"is_slippery": False, "frozen_prob": 0.9}
CONFIG = WarmStartConfig(demonstrations=24, noise=0.5, demo_actions_per_turn=2)


def play_args(folder: Path, think: bool) -> StarPOConfig:
    recipe = {**defaults("ragen/FrozenLake-v0", None), "think": think, "env_kwargs": LAKE}
    return StarPOConfig(output_dir=str(folder), seed=0, **recipe)


@pytest.mark.parametrize(("env", "named"), [("ragen/FrozenLake-v0", "PG"), ("ragen/Sokoban-v0", "PXO")])
def test_a_note_says_where_the_map_has_its_symbols(env: str, named: str) -> None:
    made = gymnasium.make(env, disable_env_checker=True)
    for seed in range(20):
        rows = made.reset(seed=seed)[0].splitlines()
        found = {(symbol, row, column) for row, line in enumerate(rows) for column, symbol in enumerate(line)}
        noted = [(part[0], int(part[1]), int(part[2])) for part in scratchpad.place_note(made.unwrapped).split()]
        assert [symbol for symbol, _, _ in noted] == list(named)
        assert set(noted) <= found | {("P", row, column) for symbol, row, column in found if symbol == "S"} | {
            ("O", row, column) for symbol, row, column in found if symbol == "S"
        }


def test_the_note_of_a_bandit_repeats_its_names_and_tells_no_role() -> None:
    env = gymnasium.make("ragen/Bandit-v0", disable_env_checker=True)
    messages = [env.reset(seed=seed)[0] for seed in range(8)]
    notes = [(env.reset(seed=seed), scratchpad.place_note(env.unwrapped))[1] for seed in range(8)]
    assert [f"Machines: {note.replace(' ', ', ')}" for note in notes] == messages
    assert len(set(notes)) == 2


def test_there_is_no_note_for_other_games() -> None:
    with pytest.raises(NoOracleError, match="place_note knows no Countdown"):
        scratchpad.place_note(gymnasium.make("ragen/Countdown-v0").unwrapped)


def test_the_thoughts_are_all_that_differs_from_plain_demonstrations(tmp_path: Path) -> None:
    tokenizer, noted = scratchpad.places("ragen/FrozenLake-v0", play_args(tmp_path, True), CONFIG)
    args = play_args(tmp_path, False)
    chat = make_chat(build_tiny_tokenizer(), make_turns("ragen/FrozenLake-v0", args), args)
    bare = demonstrate("ragen/FrozenLake-v0", args, chat, CONFIG)
    assert [episode.seed for episode in noted] == [episode.seed for episode in bare]
    shown = [[turn.info["actions"] for turn in episode.turns] for episode in noted]
    assert shown == [[turn.info["actions"] for turn in episode.turns] for episode in bare]
    assert tokenizer.get_vocab() == build_tiny_tokenizer().get_vocab()
    assert all(turn.reply.startswith("<think>P") for episode in noted for turn in episode.turns)
    assert all(turn.reply.startswith("<answer>") for episode in bare for turn in episode.turns)


def test_a_later_note_is_of_the_state_that_the_turn_began_with(tmp_path: Path) -> None:
    _, noted = scratchpad.places("ragen/FrozenLake-v0", play_args(tmp_path, True), CONFIG)
    later = [turn for episode in noted for turn in episode.turns[1:]]
    assert later
    for turn in later:
        rows = turn.observation.splitlines()
        first = rows.index("State:") + 1
        place = turn.reply.removeprefix("<think>P")[:2]
        assert rows[first + int(place[0])][int(place[1])] == "P"


def test_free_thoughts_have_three_lengths_and_fit_the_reply(tmp_path: Path) -> None:
    tokenizer, episodes = scratchpad.free("ragen/FrozenLake-v0", play_args(tmp_path, True), CONFIG)
    replies = [turn.reply for episode in episodes for turn in episode.turns]
    thoughts = [reply.removeprefix("<think>").split("</think>")[0] for reply in replies]
    words = [len(thought.split()) for thought in thoughts]
    assert words.count(0) > 5
    assert words.count(2) > 5
    assert sum(count > 2 for count in words) > 5
    assert max(len(tokenizer(reply).input_ids) for reply in replies) <= scratchpad.LONGEST_REPLY


def test_the_longest_reply_of_a_room_fits() -> None:
    way = " ".join(["Right"] * 10)
    reply = f"<think>P11 X22 O33 {way}</think><answer>Right || Right</answer><|im_end|>"
    assert len(build_tiny_tokenizer(env="ragen/Sokoban-v0")(reply).input_ids) <= scratchpad.LONGEST_REPLY
