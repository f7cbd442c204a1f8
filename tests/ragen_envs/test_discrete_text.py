"""TextFromDiscrete on Gymnasium's own toys: every message and reward below was worked out by hand from their rules."""

import copy
import functools
import pickle
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence

from ragen_envs import AgentTurns, NoOracleError, best_action, plan, random_action
from ragen_envs.discrete_text import spell_out_colours
from tests.support.ragen_envs.toys import CLIFF, LAKE, TAXI, Switch, answer, blackjack, hand, reached, toy, won

CLIFF_ID, BLACKJACK_ID = "test/Cliff-v0", "test/Blackjack-v0"


@pytest.fixture
def registered() -> Iterator[None]:
    """Two toys with their own ids."""
    entry = "ragen_envs.discrete_text:TextFromDiscrete"
    kwargs: dict[str, Any] = {"env": "CliffWalking-v1", "actions": CLIFF, "instruction": "Walk.", "success": reached}
    gymnasium.register(CLIFF_ID, entry, kwargs=kwargs)
    kwargs = {"env": "Blackjack-v1", "actions": ("stick", "hit"), "instruction": "Win.", "success": won}
    gymnasium.register(BLACKJACK_ID, entry, kwargs={**kwargs, "describe": hand})
    yield
    for env_id in (CLIFF_ID, BLACKJACK_ID):
        del gymnasium.registry[env_id]


def test_walking_along_the_cliff() -> None:
    env = AgentTurns(toy("CliffWalking-v1", CLIFF, instruction="Walk from x to T."), max_actions=20, max_turns=9)
    first, _ = env.reset(seed=0)
    row = "o  o  o  o  o  o  o  o  o  o  o  o\n"
    assert first == (
        "Walk from x to T.\n"
        "Actions: up, right, down, left\n"
        "Limits: actions per turn 5, actions in all 20, turns 9\n"
        "Reply format: <think>your thoughts</think><answer>up || right</answer>\n"
        "\n"
        f"Turn 1 of 9\nState:\n{row * 3}x  C  C  C  C  C  C  C  C  C  C  T\nActions left: 20"
    )
    # Right of the start is the cliff: -100, and back to the start. Then up, and the wall on the left.
    message, reward, _, _, info = env.step(answer("right", "Up", "left", "fly"))
    assert reward == -100 - 1 - 1 - 0.1
    assert (info["actions"], info["invalid_actions"]) == (("right", "up", "left"), ("fly",))
    assert (info["action_rewards"], info["success"]) == ((-100.0, -1.0, -1.0), False)
    assert message.splitlines()[:3] == [
        "Turn 2 of 9",
        "Unknown action ignored. Use: up, right, down, left",
        "Reward: -102",
    ]
    assert message.splitlines()[4:8] == [row.strip()] * 2 + ["x" + row.strip()[1:], "o" + "  C" * 10 + "  T"]
    for _ in range(2):
        env.step(answer(*["right"] * 5))
    message, reward, terminated, truncated, info = env.step(answer("right", "down", "down"))
    assert (reward, terminated, truncated, info["success"]) == (-2.0, True, False, True)
    assert info["surplus_actions"] == ("down",)
    assert message.splitlines()[-2:] == ["o" + "  C" * 10 + "  x", "Actions left: 5"]


def test_a_ride_in_the_taxi() -> None:
    legend = "The taxi is yellow, green with its passenger, who waits where it is blue and wants to go to magenta."
    env = AgentTurns(toy("Taxi-v4", TAXI, instruction=legend), max_turns=4, max_actions_per_turn=9, max_actions=30)
    message, _ = env.reset(seed=7)  # the taxi above the passenger at Y, whose destination is G
    grid = "+---------+\n|R: | : :[magenta:G]|\n| : | : : |\n| : : : : |\n|{}| : | : |\n|{}| : |B: |\n+---------+"
    assert grid.format("[yellow: ]", "[blue:Y]") in message
    message, reward, _, _, _ = env.step(answer("dropoff", "west", "south", "pickup", "north"))
    assert reward == -10 - 1 - 1 - 1 - 1  # an illegal drop, a wall, and three good moves
    assert grid.format("[green:_]", "Y") + "\n  (North)\nActions left: 25" in message
    message, reward, terminated, _, info = env.step(answer("north", *["east"] * 4, "north", "north", "dropoff"))
    assert (reward, terminated, info["success"], info["num_actions"]) == (7 * -1 + 20, True, True, 8)
    assert "\n  (Dropoff)\n" in message


@pytest.mark.parametrize(
    ("seed", "shown", "reward"),
    [
        (0, "You have 11. The dealer shows 10.", -1.0),  # and has 9 under it: 19
        (5, "You have 21 with an ace. The dealer shows 9.", 1.0),  # 19
        (7, "You have 19. The dealer shows 10.", 0.0),  # 19 as well
    ],
)
def test_standing_in_blackjack(seed: int, shown: str, reward: float) -> None:
    env = AgentTurns(blackjack(instruction="Get nearer to 21 than the dealer."), max_turns=1)
    message, _ = env.reset(seed=seed)
    assert message.startswith("Get nearer to 21 than the dealer.\nActions: stick, hit\n")
    assert message.endswith(f"State:\n{shown}\nActions left: 10")
    seen = env.step(answer("stick"))
    assert seen[0] == f"The end\nReward: {reward:g}\nState:\n{shown}\nActions left: 9"
    assert (seen[1:4], seen[4]["success"]) == ((reward, True, False), reward == 1.0)
    assert seen[4]["action_is_effective"]  # the same cards, but the end


def test_the_start_of_a_seed_is_the_environment_s_own() -> None:
    env, own = blackjack(), gymnasium.make("Blackjack-v1")
    assert [env.reset(seed=seed)[0] for seed in range(50)] == [hand(own.reset(seed=seed)[0]) for seed in range(50)]


def test_outcome_seed_keeps_the_hand_and_changes_the_next_card() -> None:
    env = blackjack()
    starts, cards = set(), []
    for outcome in range(40):
        starts.add(env.reset(seed=3, options={"outcome_seed": outcome})[0])
        cards.append(env.step("hit")[0])
    assert len(starts) == 1 and len(set(cards)) > 5
    env.reset(seed=3, options={"outcome_seed": 7})
    assert env.step("hit")[0] == cards[7]


def test_a_plan_does_not_foresee_the_cards() -> None:
    env = blackjack()
    env.reset(seed=2)  # 6, so that three hits may or may not go over 21
    lengths = {len(plan(env, 4, 4, np.random.default_rng(seed), noise=1.0)) for seed in range(60)}
    # The environment's own next cards would end every plan of hits alone at the same length.
    hits = {tuple(plan(env, 4, 4, np.random.default_rng(seed), noise=1.0)) for seed in range(60)}
    assert lengths == {1, 2, 3, 4} and ("hit",) * 3 in hits and ("hit",) * 4 in hits


def test_play_and_outcomes_do_not_move_later_starts() -> None:
    quiet, busy = blackjack(), blackjack()
    quiet.reset(seed=5)
    busy.reset(seed=5, options={"outcome_seed": 9})
    for _ in range(10):
        busy.step("hit")
        assert quiet.reset()[0] == busy.reset()[0]


@pytest.mark.parametrize("text", ["", "jump", "0", "x" * 100_000, "日本語 \x00 \ud800", "up || right"])
def test_garbage_changes_nothing(text: str) -> None:
    env = toy("CliffWalking-v1", CLIFF)
    start, _ = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(text)
    assert (observation, reward, terminated, truncated) == (start, 0.0, False, False)
    assert not info["action_is_valid"] and not info["success"]
    assert env.step(" UP\n")[-1]["action_is_valid"]


def test_a_wall_is_valid_and_not_effective() -> None:
    env = toy("Taxi-v4", TAXI)
    env.reset(seed=7)
    observation, reward, _, _, info = env.step("west")
    assert observation.endswith("  (West)") and reward == -1.0  # the text says West now, the state is the same
    assert (info["action_is_valid"], info["action_is_effective"]) == (True, False)
    assert env.step("south")[-1]["action_is_effective"]


def test_the_environment_s_info_is_under_one_key() -> None:
    env = toy("Taxi-v4", TAXI)
    infos = [env.reset(seed=7)[1], env.step("jump")[-1], env.step("north")[-1]]
    assert all(set(info) == {"success", "action_is_valid", "action_is_effective", "env_info"} for info in infos)
    assert infos[0]["env_info"]["action_mask"].tolist() == [1, 1, 0, 0, 0, 0]
    # The mask is told, not enforced: west is a wall, and the environment lets the taxi bump into it.
    assert env.step("west")[-1]["action_is_valid"]


def test_a_time_limit_truncates_for_good() -> None:
    env = toy(gymnasium.make("CliffWalking-v1", render_mode="ansi", max_episode_steps=3), CLIFF)
    env.reset(seed=0)
    assert [env.step(name)[3] for name in ("up", "jump", "up", "up")] == [False, False, False, True]
    final = env.step("up")
    assert final[1:4] == (0.0, False, True) and not final[4]["action_is_valid"]
    turns = AgentTurns(env)
    turns.reset(seed=0)
    assert turns.step(answer(*["up"] * 5))[-1]["limit"] == "env"
    assert env.reset(seed=0)[1]["success"] is False and not env.step("up")[3]


def test_actions_need_not_start_at_zero() -> None:
    env = toy(Switch(), ("none", "one", "two"))
    assert env.reset(seed=0)[0] == "[green:0]"
    assert [env.step(name)[:2] for name in ("two", "none", "one")] == [
        ("[green:2]", 7.0),
        ("[green:2]", 5.0),
        ("[green:3]", 6.0),
    ]
    # Its observation is one array that changes in place; compared with itself it would never change.
    assert [env.step(name)[-1]["action_is_effective"] for name in ("one", "none")] == [True, False]


def test_close_reaches_the_environment() -> None:
    inner = Switch()
    toy(inner, ("none", "one", "two")).close()
    assert inner.closed


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        ("plain [text]", "plain [text]"),
        ("\x1b[43m \x1b[0m|\x1b[42m_\x1b[0m", "[yellow: ]|[green:_]"),
        ("\x1b[35m\x1b[34;1m\x1b[43mR\x1b[0m\x1b[0m\x1b[0m", "[magenta:[blue:[yellow:R]]]"),
        ("\x1b[2J\x1b[1;1Ha\x1b[0mb\x1b[mc", "abc"),
        ("\x1b[1mbold\x1b[m \x1b[91mbright\x1b[0m", "[marked:bold] [red:bright]"),
        ("\x1b[31mA\x1b[39mB\x1b[44mC\x1b[49mD", "[red:A]B[blue:C]D"),  # colorama's Fore.RESET and Back.RESET
        ("\x1b[0;31mA\x1b[0;32mB\x1b[0mC", "[red:A][green:B]C"),  # of a shell's prompt
        ("\x1b[31m\x1b[1mA\x1b[22mB\x1b[0m", "[red:[marked:A]B]"),
        ("\x1b[38;5;34mA\x1b[0m\x1b[48;2;31;0;34;32mB\x1b[m", "[marked:A][green:B]"),
    ],
)
def test_colours_become_words(shown: str, text: str) -> None:
    assert spell_out_colours(shown) == text


def test_gymnasium_s_own_lake_shows_the_player() -> None:
    # With the colours cut out, nothing would tell where the player is.
    env = toy(gymnasium.make("FrozenLake-v1", render_mode="ansi", is_slippery=False), LAKE, success=won)
    assert env.reset(seed=0)[0] == "[red:S]FFF\nFHFH\nFFFH\nHFFG"
    assert env.step("right")[0] == "  (Right)\nS[red:F]FF\nFHFH\nFFFH\nHFFG"
    for name in ("right", "down", "down", "down"):
        env.step(name)
    assert env.step("right")[1:3] == (1.0, True)
    assert env.step("right")[-1]["success"]


@pytest.mark.parametrize("env_id", [CLIFF_ID, BLACKJACK_ID])
def test_gymnasium_checker_passes_without_warnings(registered: None, env_id: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(env_id, disable_env_checker=True).unwrapped)


@pytest.mark.parametrize("env_id", [CLIFF_ID, BLACKJACK_ID])
def test_copies_pickles_and_specs_play_on_alike(registered: None, env_id: str) -> None:
    env = AgentTurns(gymnasium.make(env_id), max_turns=7)
    env.reset(seed=4)
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    assert env.spec is not None
    rebuilt = gymnasium.make(env.spec)
    rebuilt.reset(seed=4)
    action = "up" if env_id == CLIFF_ID else "hit"
    seen = env.step(answer(action))
    for twin in [*twins, rebuilt]:
        assert data_equivalence(twin.step(answer(action)), seen, exact=True)
        assert data_equivalence(twin.reset(seed=9), env.reset(seed=9), exact=True)
    assert "Turn 1 of 7" in rebuilt.reset(seed=9)[0]


def test_a_vector_of_them(registered: None) -> None:
    envs = gymnasium.make_vec(CLIFF_ID, num_envs=2, vectorization_mode="sync", wrappers=[AgentTurns])
    envs.reset(seed=0)
    messages, rewards, _, _, info = envs.step((answer("up"), answer("right")))
    assert rewards.tolist() == [-1.0, -100.0]
    assert info["actions_left"].tolist() == [9, 9] and messages[0] != messages[1]
    envs.close()


def test_random_play_works_and_an_oracle_must_be_written() -> None:
    env = AgentTurns(toy("Taxi-v4", TAXI))
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    assert {random_action(env, rng) for _ in range(100)} == set(TAXI)
    with pytest.raises(NoOracleError, match="best_action knows no TextFromDiscrete"):
        best_action(env, 5)


def test_the_info_within_is_the_callers_to_change() -> None:
    env = toy("Taxi-v4", TAXI)
    env.reset(seed=0)
    info = env.step("south")[-1]
    info["env_info"]["mine"] = 1
    assert "mine" not in env.step("no such action")[-1]["env_info"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"actions": ("up", "down")}, r"must be 4 names, one for each action of Discrete\(4\)"),
        ({"actions": "urdl"}, "must be 4 names"),
        ({"actions": ("up", "Up", "down", "left")}, "differ in more than case"),
        ({"actions": ("up", " right", "down", "left")}, "name ' right' of an action must be printable ASCII"),
        ({"describe": "human"}, "describe='human' must be 'ansi' or a function"),
        ({"env": functools.partial(Switch, render_mode=None)}, "has render_mode=None; make it with 'ansi'"),
        ({"env": lambda: gymnasium.make("CartPole-v1"), "actions": ("left", "right")}, "cannot show itself as text"),
        ({"env": lambda: gymnasium.make("MountainCarContinuous-v0")}, "wrap an environment with Discrete actions"),
        ({"render_mode": "human"}, "render_mode='human' is unknown"),
        ({"env": Switch, "env_kwargs": {"size": 8}}, r"env_kwargs is \{'size': 8\}, but env is made already"),
    ],
)
def test_wrong_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    given = {"env": "CliffWalking-v1", "actions": CLIFF, **arguments}
    if callable(given["env"]):
        given["env"] = given["env"]()
    with pytest.raises(ValueError, match=message):
        toy(**given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"describe": lambda seen: seen}, r"describe\(\(.*must return text"),
        ({"describe": lambda seen: "♠"}, r"has \['♠'\], which are not in the charset; pass charset="),
        ({"describe": lambda seen: "x" * 2000}, "pass max_observation_length=2000"),
    ],
)
def test_a_description_that_does_not_fit_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        toy("Blackjack-v1", ("stick", "hit"), **arguments).reset(seed=0)
    fits = toy(
        "Blackjack-v1", ("stick", "hit"), describe=lambda seen: "♠" * 2000, charset="♠", max_observation_length=2000
    )
    assert fits.reset(seed=0)[0] in fits.observation_space


def test_arguments_of_the_environment_within() -> None:
    env = toy("FrozenLake-v1", LAKE, env_kwargs={"map_name": "8x8", "is_slippery": False})
    assert len(env.reset(seed=0)[0].splitlines()) >= 8
