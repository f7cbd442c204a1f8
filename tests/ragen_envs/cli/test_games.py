"""Playing: what is shown after each move, what lines and keys mean, and that a watched episode is the measured one."""

import os
import pty
import termios
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest

from ragen_envs import AgentTurns, Bandit, FrozenLake, TextEnv, ToolTurns
from ragen_envs.baselines import episode_seeds, measure
from ragen_envs.calling.tool import write_call
from ragen_envs.cli.games import Game, Moves, Replies, key_bindings, play, turns_of
from ragen_envs.cli.keyboard import Keyboard
from ragen_envs.cli.players import KeyPlayer, LinePlayer, PolicyPlayer
from tests.support.ragen_envs.notes import Notes
from tests.support.ragen_envs.toys import calls


def corner_lake() -> FrozenLake:
    """Two by two tiles without holes and slips, from the top left to the bottom right."""
    return FrozenLake(size=2, frozen_prob=1.0, is_slippery=False, random_start=False)


def corner_turns(**limits: Any) -> AgentTurns:
    return AgentTurns(corner_lake(), think=False, **limits)


class Spelling(TextEnv):
    """Its actions are the letters that are commands elsewhere."""

    instruction = "Say r, then q."
    actions = ("q", "r")

    def _start(self, options: Mapping[str, Any]) -> str:
        self.said = ""
        return "Speak."

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        self.said += action
        return self.said, 0.0, len(self.said) == 2, {"success": self.said == "rq", "action_is_effective": True}


def source(*items: str) -> Callable[[], str | None]:
    """Keys or lines, then always the end of the input."""
    left: Iterator[str] = iter(items)
    return lambda: next(left, None)


def by_lines(game: Game, *lines: str, seed: int = 0) -> list[str]:
    shown: list[str] = []
    play(game, LinePlayer(source(*lines)), shown.append, seed)
    return shown


def by_keys(game: Game, *keys: str) -> list[str]:
    shown: list[str] = []
    read = source(*keys)
    play(game, KeyPlayer(lambda: read() or ""), shown.append, 0)
    return shown


def test_moves_show_state_reward_return_and_what_is_left() -> None:
    game = Moves(corner_lake(), "Corner", max_actions=5)
    start = game.begin(seed=4)
    assert start.startswith("Corner, seed 4\n\nWalk over the frozen lake")
    assert start.endswith("P_\n_G\n5 actions left\n")
    assert game.take("Up") == "P_\n_G\nUp (nothing changed): reward 0, return 0, 4 actions left\n"
    assert game.take("Right") == "_P\n_G\nRight: reward 0, return 0, 3 actions left\n"
    end = "__\n_√\nDown: reward 1, return 1, 2 actions left\nThe end: success, return 1, 3 actions\n"
    assert not game.is_over
    assert game.take("Down") == end
    assert game.is_over


def test_moves_end_at_the_limit_of_actions() -> None:
    game = Moves(corner_lake(), "Corner", max_actions=1)
    game.begin(seed=0)
    assert game.take("Right").endswith("The end: no success, a limit was reached, return 0, 1 action\n")
    assert game.is_over
    game.begin(seed=1)
    assert not game.is_over
    with pytest.raises(ValueError, match="max_actions=0"):
        Moves(corner_lake(), "Corner", max_actions=0)


def test_moves_tell_what_the_environment_says_of_itself() -> None:
    game = Moves(FrozenLake(size=8, frozen_prob=1.0, success_rate=0.0), "Slide", max_actions=1)
    game.begin(seed=0)
    assert "Left (slipped" in game.take("Left")


def test_a_screen_stands_for_itself() -> None:
    shown = by_keys(Moves(corner_lake(), "Corner", 5, screen=True), "right", "h", "s")
    assert len(shown) == 4
    assert all(text.startswith("Corner, seed 0\n\nWalk over") for text in shown)
    assert "_P\n_G\n\nRight: reward 0" in shown[1]
    assert shown[2].startswith(shown[1])
    assert "Left: left arrow or a" in shown[2]
    assert "arrow keys" in shown[1] and "arrow keys" not in shown[3]  # over: nothing left to move
    assert "The end: success" in shown[3]


@pytest.mark.parametrize(
    ("actions", "keys"),
    [
        (("Up", "Left"), {"up": "Up", "w": "Up", "left": "Left", "a": "Left"}),
        (("Trader", "Librarian"), {"1": "Trader", "2": "Librarian"}),
        (("south", "pickup", "east"), {"down": "south", "s": "south", "right": "east", "d": "east", "1": "pickup"}),
        (("Up", "North"), {"up": "Up", "w": "Up", "1": "North"}),
        (tuple("ABCDEFGHIJ"), {}),
        (None, {}),
    ],
)
def test_keys_by_the_names_of_the_actions(actions: tuple[str, ...] | None, keys: dict[str, str]) -> None:
    assert key_bindings(actions) == keys


def test_keys_play_restart_and_quit() -> None:
    shown = by_keys(Moves(corner_lake(), "Corner", 5), "x", "down", "D".lower(), "right", "r", "q", "up")
    assert [text.splitlines()[-1].split(":")[0] for text in shown[1:3]] == ["Down", "The end"]
    assert "Corner, seed 1" in shown[3]  # the arrow after the end did nothing
    assert len(shown) == 4


def test_digits_follow_the_names_of_the_episode() -> None:
    """The bandit's names change places; 1 is always the first that is shown."""
    orders = set()
    for seed in range(8):
        game = Moves(Bandit(), "Bandit", 1)
        names = game.begin(seed).split("Machines: ")[1].split("\n")[0].split(", ")
        orders.add(tuple(names))
        assert game.bindings() == {"1": names[0], "2": names[1]}
    assert len(orders) == 2


def test_replies_show_the_messages_of_agent_turns_to_the_letter() -> None:
    turns = corner_turns()
    first, _ = turns.reset(seed=3, options={"outcome_seed": episode_seeds(3)[0]})
    second = turns.step("<answer>Right</answer>")[0]
    last = turns.step("<answer>Left || Right || Down</answer>")[0]
    shown = by_lines(Replies(corner_turns(), "Corner"), "right", "Left||Right || down", seed=3)
    assert shown[0] == f"-- Corner, seed 3\n{first}"
    assert shown[1] == second
    assert shown[2] == f"{last}\n-- success, return 1, 4 actions in 2 turns"


def test_a_whole_reply_is_taken_as_it_is() -> None:
    shown = by_lines(Replies(corner_turns(), "Corner"), "hm <answer>Right||Down||Up</answer> ok")
    assert shown[1].endswith("-- ignored, past a limit: Up\n-- success, return 1, 2 actions in 1 turn")
    shown = by_lines(Replies(corner_turns(max_turns=2), "Corner"), "<answer>Right", "Fly")
    assert shown[1].startswith("Turn 2 of 2\nUnreadable reply.") and shown[1].endswith("-- format penalty -0.1")
    assert "Unknown action ignored" in shown[2]
    assert shown[2].endswith("-- no success, limit: turns, return -0.2, 0 actions in 2 turns")


def test_odd_lines_are_never_an_exception() -> None:
    lines = ["||", " || || ", "\x00", "日本語", "a" * 100_000, "<think>", "</answer>||<answer>"]
    shown = by_lines(Replies(corner_turns(max_turns=20), "Corner"), *lines)
    assert len(shown) == 1 + len(lines)
    assert all("-- format penalty -0.1" in text for text in shown[1:])


def test_commands_in_lines() -> None:
    lines = ["", "?", "down||right", "Up", "R", "q", "down"]
    shown = by_lines(Replies(corner_turns(), "Corner"), *lines)
    assert shown[1] == "-- type actions (Left || Down) or a whole reply with its tags; r: next seed, h: help, q: quit"
    assert shown[2].endswith("success, return 1, 2 actions in 1 turn")
    assert shown[3] == "-- the episode is over; r: next seed, h: help, q: quit"
    assert shown[4].startswith("-- Corner, seed 1\n")
    assert len(shown) == 5


def test_tools_are_played_in_the_messages_that_a_model_gets() -> None:
    """Regression: `play --text` showed the tags of answers, which a model with tools never sees."""
    turns = ToolTurns(Notes(), think=True)
    first, _ = turns.reset(seed=3, options={"outcome_seed": episode_seeds(3)[0]})
    bare, whole = write_call("write", {"text": "a"}), f"<think>so</think>{calls(('write', {'text': 'b'}))}"
    lines = ["?", bare, whole, '{"name": 1}', "I give up.", "?"]
    shown = by_lines(Replies(turns_of(Notes(), think=True), "Notes"), *lines, seed=3)
    title, *tools = shown[0].replace(f"\n{first}\n", "\n").splitlines()
    assert f"\n{first}\n" in shown[0] and title == "-- Notes, seed 3"
    assert len(tools) == 5 and tools[0] == "-- write(text: string, times?: integer): Write a note."
    assert shown[1].startswith('-- type a call ({"name": ') and shown[2:4] == ["written", "written"]
    assert shown[4].startswith("Error: the call is not JSON") and shown[4].endswith("-- format penalty -0.1")
    assert shown[5] == "The episode is over.\n-- no success, return -0.1, 3 actions in 4 turns"
    assert shown[6].startswith("-- the episode is over")
    assert by_lines(Replies(turns_of(Notes()), "Notes"), "|| no ||")[1].startswith("The episode is over.")


def test_an_action_with_the_name_of_a_command_is_an_action() -> None:
    shown = by_lines(Replies(AgentTurns(Spelling(), think=False), "Spelling"), "r", "Q", "r", "q")
    assert shown[2].endswith("-- success, return 0, 2 actions in 2 turns")
    assert shown[3].startswith("-- Spelling, seed 1")


@pytest.mark.parametrize("policy", ["random", "oracle"])
def test_a_watched_episode_is_the_measured_one(policy: str) -> None:
    env = gymnasium.make("ragen/FrozenLake-v0")
    verdicts = set()
    for seed in range(12):
        shown: list[str] = []
        play(Moves(env, "Lake", max_actions=10), PolicyPlayer(policy, seed), shown.append, seed)
        row = measure("ragen/FrozenLake-v0", policy, episodes=1, first_seed=seed)
        verdict = "success" if row.successes else "no success"
        assert shown[-1].splitlines()[-1].startswith(f"The end: {verdict}")
        assert len(shown) - 1 == row.mean_length
        verdicts.add(verdict)
    assert len(verdicts) == 2


def test_a_policy_plays_replies_and_shows_them() -> None:
    shown: list[str] = []
    game = Replies(corner_turns(max_actions_per_turn=1), "Corner")
    play(game, PolicyPlayer("oracle", 0, show=shown.append), shown.append, 0)
    assert [text for text in shown if text.startswith(">")] == ["> <answer>Down</answer>", "> <answer>Right</answer>"]
    assert shown[-1].endswith("-- success, return 1, 2 actions in 2 turns")
    rng = np.random.default_rng(0)
    game.begin(0)
    assert len({game.suggest("random", rng) for _ in range(50)}) == 4


def test_an_oracle_that_is_watched_thinks_where_replies_have_thoughts() -> None:
    """Its thoughts were empty."""
    turns = AgentTurns(gymnasium.make("ragen/FrozenLake-v0", is_slippery=False))
    shown: list[str] = []
    play(Replies(turns, "Lake"), PolicyPlayer("oracle", 2, show=shown.append), shown.append, 2)
    replies = [text for text in shown if text.startswith("> ")]
    assert replies
    for reply in replies:
        thought, answer = reply.removeprefix("> <think>").split("</think><answer>")
        assert thought.endswith(f" {answer.removesuffix('</answer>').split(' || ')[0]}.")
    unexplained = Replies(AgentTurns(Spelling()), "Spelling")
    unexplained.begin(0)
    assert unexplained.suggest("random", np.random.default_rng(0)).startswith("<think></think><answer>")


def test_the_keyboard_names_keys_and_puts_the_terminal_back() -> None:
    outside, terminal = pty.openpty()
    mode = termios.tcgetattr(terminal)
    try:
        with pytest.raises(RuntimeError, match="something broke"), Keyboard(terminal) as keys:
            assert not termios.tcgetattr(terminal)[3] & (termios.ECHO | termios.ICANON)
            os.write(outside, b"\x1b[A\x1b[B\x1bOC\x1b[1;5DW?1\x1b[3~\x04")
            expected = ["up", "down", "right", "left", "w", "?", "1", "escape", ""]
            assert [keys.read() for _ in expected] == expected
            os.write(outside, b"\x1b")  # the key itself: nothing follows
            assert keys.read() == "escape"
            raise RuntimeError("something broke")
        assert termios.tcgetattr(terminal) == mode
    finally:
        os.close(outside)
        os.close(terminal)
