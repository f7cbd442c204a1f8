"""Bandit: pay-outs, names and order, sets of names, more arms, pictures."""

import json
from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest
from numpy.typing import NDArray

from ragen_envs import AgentTurns, Bandit
from ragen_envs.bandit import NAME_SETS, TEST_PAIRS, TRAIN_PAIRS
from ragen_envs.bandit.picture import draw_bandit


def pay(env: Bandit, arm: str, outcome_seed: int) -> float:
    """The reward of one pull, start state of seed 0."""
    env.reset(seed=0, options={"outcome_seed": outcome_seed})
    return float(env.step(arm)[1])


def test_low_arm_always_pays_a_tenth() -> None:
    env = Bandit()
    assert {pay(env, "Phoenix", seed) for seed in range(200)} == {0.1}


def test_high_arm_pays_one_a_quarter_of_the_time() -> None:
    env = Bandit()
    rewards = [pay(env, "Dragon", seed) for seed in range(4000)]
    assert set(rewards) == {0.0, 1.0}
    assert np.mean(rewards) == pytest.approx(0.25, abs=0.028)  # 4 standard errors


def test_expected_rewards() -> None:
    env = Bandit()
    assert (env.expected_reward("Phoenix"), env.expected_reward("Dragon")) == (0.1, 0.25)
    paper = Bandit(low_reward=0.15)
    assert paper.expected_reward("Phoenix") == 0.15
    assert pay(paper, "Phoenix", 0) == 0.15


def test_episode_is_one_choice_and_success_is_the_high_arm_whatever_it_paid() -> None:
    env = Bandit()
    for seed in range(8):
        env.reset(seed=seed)
        observation, reward, terminated, truncated, info = env.step("dragon")
        assert observation == f"Dragon: {reward:g} points"
        assert (terminated, truncated) == (True, False)
        assert info == {"success": True, "action_is_valid": True, "action_is_effective": True, "arm": "Dragon"}
        env.reset(seed=seed)
        observation, _, terminated, _, info = env.step("PHOENIX ")
        assert (observation, terminated, info["success"], info["arm"]) == (
            "Phoenix: 0.1 points",
            True,
            False,
            "Phoenix",
        )


def test_order_is_drawn_per_seed_and_tells_no_role() -> None:
    env = Bandit()
    firsts = []
    for seed in range(1000):
        observation, _ = env.reset(seed=seed)
        assert observation == "Machines: " + ", ".join(env.actions)
        firsts.append(env.actions[0])
    assert 437 < firsts.count("Dragon") < 563  # 4 standard errors
    assert Bandit().actions == Bandit(low_name="Dragon", high_name="Phoenix").actions


def test_rev_swaps_the_roles_of_the_same_names() -> None:
    env = gymnasium.make("ragen/BanditRev-v0").unwrapped
    assert isinstance(env, Bandit)
    env.reset(seed=0)
    assert (env.high_name, env.expected_reward("Phoenix"), env.expected_reward("Dragon")) == ("Phoenix", 0.25, 0.1)
    assert pay(env, "Dragon", 0) == 0.1


def test_instruction_is_the_same_for_both_roles() -> None:
    assert Bandit().instruction == Bandit(low_name="Dragon", high_name="Phoenix").instruction
    assert "symbolises" in Bandit().instruction


def test_seeds_mean_what_they_did_when_there_were_only_two_arms() -> None:
    # Played with the first version: seeds 0 to 11, the first name and what the Dragon paid.
    env = Bandit()
    played = []
    for seed in range(12):
        env.reset(seed=seed)
        played.append((env.actions[0][0], env.step("Dragon")[1]))
    assert "".join(name for name, _ in played) == "DDPPDDDDPDDP"
    assert [seed for seed, (_, reward) in enumerate(played) if reward] == [1, 2, 4, 5, 6, 8]


def test_ragen_2_has_twelve_training_and_eight_test_pairs_without_a_common_name() -> None:
    assert (len(TRAIN_PAIRS), len(TEST_PAIRS)) == (12, 8)
    names = [name for pair in TRAIN_PAIRS + TEST_PAIRS for name in pair]
    assert len({name.casefold() for name in names}) == 40
    assert (TRAIN_PAIRS[0], TRAIN_PAIRS[-1]) == (("Teacher", "Trader"), ("Gardener", "Cryptominer"))
    assert (TEST_PAIRS[0], TEST_PAIRS[-1]) == (("Receptionist", "Explorer"), ("CivilServant", "StartupAccelerator"))


def test_each_pair_of_a_set_is_drawn_as_often_and_keeps_its_roles() -> None:
    env = gymnasium.make("ragen/Bandit-v0", names="ragen2-train").unwrapped
    assert isinstance(env, Bandit)
    drawn: Counter[tuple[str, str]] = Counter()
    firsts = 0
    for seed in range(2400):
        observation, _ = env.reset(seed=seed)
        assert observation == f"Machines: {env.actions[0]}, {env.actions[1]}"
        low = next(name for name in env.actions if name != env.high_name)
        drawn[low, env.high_name] += 1
        firsts += env.actions[0] == env.high_name
    assert set(drawn) == set(TRAIN_PAIRS)
    assert all(145 < count < 255 for count in drawn.values())  # 200 expected, 4 standard errors
    assert 1102 < firsts < 1298


def test_a_pair_pays_and_succeeds_by_its_roles() -> None:
    env = Bandit(names="ragen2-test", high_probability=1.0)
    for seed in range(40):
        env.reset(seed=seed)
        low = next(name for name in env.actions if name != env.high_name)
        assert (env.expected_reward(low), env.expected_reward(env.high_name)) == (0.1, 1.0)
        observation, reward, _, _, info = env.step(low.lower())
        assert (observation, reward, info["success"]) == (f"{low}: 0.1 points", 0.1, False)
        env.reset(seed=seed)
        observation, reward, _, _, info = env.step(env.high_name)
        assert (observation, reward, info["success"]) == (f"{env.high_name}: 1 points", 1.0, True)


def test_ragen_1_trains_on_one_pair_tests_on_another_and_rev_swaps_them() -> None:
    high = {}
    for key in ("ragen1-train", "ragen1-test", "ragen1-rev-train", "ragen1-rev-test"):
        env = Bandit(names=key)
        env.reset(seed=0)
        high[key] = env.high_name, *sorted(env.actions)
    assert high == {
        "ragen1-train": ("Teacher", "Engineer", "Teacher"),
        "ragen1-test": ("Librarian", "Librarian", "Trader"),
        "ragen1-rev-train": ("Engineer", "Engineer", "Teacher"),
        "ragen1-rev-test": ("Trader", "Librarian", "Trader"),
    }


def test_every_set_of_names_fits_its_spaces() -> None:
    for key in NAME_SETS:
        env = AgentTurns(gymnasium.make("ragen/Bandit-v0", names=key), max_turns=1)
        for seed in range(30):
            message, _ = env.reset(seed=seed)
            assert message in env.observation_space
            assert f"Actions: {', '.join(env.actions)}" in message
            message, _, terminated, _, _ = env.step(env.format_reply([env.actions[0]]))
            assert terminated and message in env.observation_space


def test_messages_with_the_longest_names_fit_their_space() -> None:
    """Regression: their room was that of the names before the first reset."""
    turns = AgentTurns(Bandit(names=[["A", "B"], ["x" * 900, "y" * 900]]))
    messages = [turns.reset(seed=seed)[0] for seed in range(6)]
    messages += [turns.step(reply)[0] for reply in ("nothing", turns.format_reply(["C"]))]
    assert max(map(len, messages)) > 4000 and all(message in turns.observation_space for message in messages)


def test_of_more_arms_the_last_is_high_and_every_order_as_likely() -> None:
    names = json.loads('[["Turtle", "Snail", "Dragon"]]')
    env = Bandit(names=names, low_reward=0.2)
    orders = Counter(env.actions for seed in range(1200) if env.reset(seed=seed))
    assert len(orders) == 6
    assert all(148 < count < 252 for count in orders.values())  # 200 expected, 4 standard errors
    assert [env.expected_reward(name) for name in names[0]] == [0.2, 0.2, 0.25]
    assert env.instruction.startswith("3 slot machines") and Bandit().instruction.startswith("Two slot machines")
    for name, success in (("Turtle", False), ("Snail", False), ("Dragon", True)):
        env.reset(seed=3)
        assert env.step(name)[4]["success"] is success


def test_outcome_seed_keeps_pair_and_order() -> None:
    env = Bandit(names="ragen2-train", high_probability=0.5)
    starts, rewards = set(), []
    for outcome in range(200):
        starts.add(env.reset(seed=4, options={"outcome_seed": outcome})[0])
        rewards.append(env.step(env.high_name)[1])
    assert len(starts) == 1
    assert 0.35 < np.mean(rewards) < 0.65  # 4 standard errors


def frame(env: Bandit) -> NDArray[np.uint8]:
    """The picture of the current state."""
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert (picture.shape, picture.dtype) == ((480, 640, 3), np.uint8)
    return picture


def test_picture_lights_the_machine_that_was_pulled_and_shows_what_it_paid() -> None:
    env = Bandit(render_mode="rgb_array", high_probability=0.5)
    env.reset(seed=0)
    before = frame(env)
    left, right = slice(0, 320), slice(320, 640)
    paid: dict[float, NDArray[np.uint8]] = {}
    for outcome in range(20):
        env.reset(seed=0, options={"outcome_seed": outcome})
        assert (frame(env) == before).all()
        reward = float(env.step("Dragon")[1])
        paid[reward] = frame(env)
    pulled, other = (right, left) if env.actions[1] == "Dragon" else (left, right)
    for picture in paid.values():
        assert picture[:, other].mean() < 0.85 * before[:, other].mean()  # passed over: dimmed
        assert picture[:, pulled].mean() > before[:, pulled].mean()  # lit
    assert set(paid) == {0.0, 1.0}
    assert (paid[0.0][:, pulled] != paid[1.0][:, pulled]).any()
    assert (paid[0.0][:, other] == paid[1.0][:, other]).all()


def test_picture_tells_no_role_before_the_choice() -> None:
    one, other = Bandit(render_mode="rgb_array"), Bandit("Dragon", "Phoenix", render_mode="rgb_array")
    one.reset(seed=0)
    seed = next(seed for seed in range(50) if other.reset(seed=seed) and other.actions == one.actions)
    other.reset(seed=seed)
    assert (frame(one) == frame(other)).all()


def test_picture_has_one_size_for_any_number_of_arms_and_any_name() -> None:
    for count in (1, 2, 5, 6, 11, 23):
        names = [f"{'Long name ' * 4}{place}" for place in range(count)]
        pictures = [draw_bandit(names, pulled, reward) for pulled, reward in (("", None), (names[-1], 0.25))]
        assert {picture.shape for picture in pictures} == {(480, 640, 3)}
        assert (pictures[0] != pictures[1]).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"low_name": "dragon"}, "must differ in more than case"),
        ({"low_name": ""}, "the name ''"),
        ({"high_name": " Dragon"}, "the name ' Dragon'"),
        ({"high_name": "龍"}, "the name '龍'"),
        ({"high_probability": 1.5}, "high_probability=1.5"),
        ({"names": "ragen2"}, "names='ragen2' is unknown; use one of ragen2-train, ragen2-test"),
        ({"names": []}, r"names=\[\] is empty"),
        ({"names": ["Teacher", "Trader"]}, r"names contains 'Teacher'; .* as in \[\['Teacher', 'Trader'\]\]"),
        ({"names": [["Teacher"]]}, r"names contains \['Teacher'\]"),
        ({"names": [["Ox", "Elk", "ox"]]}, "the names 'Ox', 'Elk', 'ox' of actions must differ"),
        ({"names": [["Ox", "Elk"], ["Ox", "Élan"]]}, "the name 'Élan'"),
        ({"names": "ragen2-test", "low_name": "Ox"}, "names='ragen2-test' exclude low_name='Ox'"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Bandit(**arguments)
