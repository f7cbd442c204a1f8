"""Countdown: the reward worked by hand, tasks that can always be solved, and play as a model plays it."""

import json
import warnings
from collections import Counter
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from ragen_envs import AgentTurns, random_action
from ragen_envs.countdown import Countdown
from ragen_envs.countdown.arithmetic import MAX_LENGTH, random_expression, solve


def task(numbers: tuple[int, ...], target: int) -> Countdown:
    """An environment with a given task instead of a random one."""
    env = Countdown()
    env.reset(seed=0)
    env._numbers, env._target = numbers, target
    return env


@pytest.mark.parametrize(
    ("answer", "observation", "reward", "success", "uses_the_numbers", "value"),
    [
        ("44+19+35", "44 + 19 + 35 = 98\nCorrect.", 1.0, True, True, "98"),
        ("35 + (44 + 19) = 98", "35 + (44 + 19) = 98\nCorrect.", 1.0, True, True, "98"),
        ("-(-44 - 19) + 35", "-(-44 - 19) + 35 = 98\nCorrect.", 1.0, True, True, "98"),
        ("44 + 19 - 35", "44 + 19 - 35 = 28\nThe target is 98.", 0.1, False, True, "28"),
        ("44 / 35 × 19", "44 / 35 * 19 = 836/35\nThe target is 98.", 0.1, False, True, "836/35"),
        ("44 + 54", "44 + 54 = 98\nUse each of the numbers exactly once.", 0.0, False, False, "98"),
        ("44 + 19", "44 + 19 = 63\nUse each of the numbers exactly once.", 0.0, False, False, "63"),
        ("98", "98 = 98\nUse each of the numbers exactly once.", 0.0, False, False, "98"),
        (
            "44 + 19 + 35 + 35 - 35",
            "44 + 19 + 35 + 35 - 35 = 98\nUse each of the numbers exactly once.",
            *(0.0, False, False, "98"),
        ),
    ],
)
def test_grades_worked_by_hand(
    answer: str, observation: str, reward: float, success: bool, uses_the_numbers: bool, value: str
) -> None:
    env = task((44, 19, 35), 98)
    assert env.step(answer) == (
        observation,
        reward,
        True,
        False,
        {
            "success": success,
            "action_is_valid": True,
            "action_is_effective": True,
            "value": value,
            "uses_the_numbers": uses_the_numbers,
        },
    )


def test_numbers_count_as_often_as_they_are_given() -> None:
    assert task((5, 5, 7), 17).step("5 + 7 + 5")[1] == 1.0
    assert task((5, 5, 7), 19).step("5 + 7 + 7")[1] == 0.0


def test_division_by_zero_is_another_value() -> None:
    observation, reward, terminated, _, info = task((5, 5, 7), 17).step("7 / (5 - 5)")
    assert observation == "7 / (5 - 5) = undefined\nThe target is 17."
    assert (reward, terminated, info["value"], info["uses_the_numbers"]) == (0.1, True, "undefined", True)
    assert task((5, 5, 7), 17).step("9 / (5 - 5)")[1] == 0.0


def test_values_are_exact_where_floats_are_near() -> None:
    # 1 / 999,999 is within RAGEN's 0.00001 of 0, and it is not 0.
    _, reward, _, _, info = task((1, 999_999), 0).step("1 / 999999")
    assert (reward, info["success"], info["value"]) == (0.1, False, "1/999999")
    assert task((49, 49, 49), 49).step("49 / 49 * 49")[1] == 1.0  # in floats (1 / 49) * 49 is not 1
    assert task((1, 49, 49), 1).step("1 / 49 * 49")[1] == 1.0


@pytest.mark.parametrize(
    "junk", ["", "I give up", "44 + ", "44 19 35", "44 ** 2", "(" * 100_000, "9" * 100_000, "日本語"]
)
def test_what_is_no_expression_changes_nothing(junk: str) -> None:
    env = task((44, 19, 35), 98)
    _, reward, terminated, truncated, info = env.step(junk)
    assert (reward, terminated, truncated) == (0.0, False, False)
    assert not (info["action_is_valid"] or info["action_is_effective"] or info["success"])
    assert (info["value"], info["uses_the_numbers"]) == ("", False)
    assert env.step("44 + 19 + 35")[4]["success"]


def test_after_an_answer_there_is_no_other() -> None:
    env = task((44, 19, 35), 98)
    first = env.step("44 + 19 - 35")[0]
    observation, reward, terminated, _, info = env.step("44 + 19 + 35")
    assert (observation, reward, terminated, info["success"]) == (first, 0.0, True, False)


def test_observation_shows_the_task() -> None:
    env = Countdown()
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        numbers, target = observation.splitlines()
        assert numbers == "Numbers: " + ", ".join(map(str, env.numbers))
        assert target == f"Target: {env.target}"


KINDS: list[dict[str, Any]] = [
    {},
    {"operators": "+-*/"},
    {"counts": 2, "operators": "/", "target_range": [2, 9]},
    {"counts": [5, 6], "number_range": [1, 12], "target_range": [-50, 1000], "operators": "*-"},
    {"number_range": [999_000, 1_000_000], "target_range": [0, 1_000_000]},
]


@pytest.mark.parametrize("arguments", KINDS, ids=str)
def test_tasks_stay_in_range_and_have_a_solution(arguments: dict[str, Any]) -> None:
    env = Countdown(**json.loads(json.dumps(arguments)))
    counts = arguments.get("counts", [3, 4])
    low, high = arguments.get("number_range", (1, 99))
    least, most = arguments.get("target_range", (10, 99))
    for seed in range(40):
        observation, _ = env.reset(seed=seed)
        assert observation in env.observation_space
        assert len(env.numbers) in ([counts] if isinstance(counts, int) else counts)
        assert all(low <= number <= high for number in env.numbers)
        assert least <= env.target <= most
        answer = solve(env.numbers, env.target, env.operators)
        assert answer is not None and answer in env.action_space
        observation, reward, _, _, info = env.step(answer)
        assert observation in env.observation_space
        assert (reward, info["success"]) == (1.0, True)


def test_counts_are_equally_likely_and_numbers_and_targets_cover_their_ranges() -> None:
    env = Countdown()
    counts: Counter[int] = Counter()
    numbers: set[int] = set()
    targets: set[int] = set()
    for seed in range(1000):
        env.reset(seed=seed)
        counts[len(env.numbers)] += 1
        numbers.update(env.numbers)
        targets.add(env.target)
    assert set(counts) == {3, 4}
    assert 437 < counts[3] < 563  # 4 standard errors
    assert (min(numbers), max(numbers), len(numbers)) == (1, 99, 99)
    assert (min(targets), max(targets), len(targets)) == (10, 99, 90)


def test_random_play_uses_the_numbers_and_seldom_solves() -> None:
    env, rng = Countdown(), np.random.default_rng(0)
    infos = []
    for seed in range(512):
        env.reset(seed=seed)
        infos.append(env.step(random_expression(env.numbers, rng))[4])
    assert all(info["uses_the_numbers"] for info in infos)
    assert 0.008 < np.mean([info["success"] for info in infos]) < 0.06  # over 20,000 seeds: 0.029


def test_random_action_does_not_know_which_operators_suffice() -> None:
    env, rng = Countdown(operators="+-"), np.random.default_rng(0)
    env.reset(seed=0)
    assert set("+-*/") <= set("".join(random_action(env, rng) for _ in range(50)))


def test_rare_tasks_are_drawn_evenly() -> None:
    # 9 of the 36 * 36 pairs have the product 36, hence a reset takes 144 tries on average.
    env = Countdown(counts=2, operators="*", number_range=(1, 36), target_range=(36, 36))
    drawn = Counter(env.numbers for seed in range(90) if env.reset(seed=seed))
    assert all(one * other == 36 for one, other in drawn) and env.target == 36
    assert len(drawn) == 9  # 1·36, 2·18, 3·12 and 4·9 both ways round, and 6·6
    assert max(drawn.values()) < 22


def test_longest_answers_stay_in_the_observation_space() -> None:
    env = Countdown()
    for answer in ("9" * MAX_LENGTH, "1/" + "9" * (MAX_LENGTH - 4), "+".join(f"1/{n}" for n in range(101, 126))):
        env.reset(seed=0)
        observation, _, terminated, _, _ = env.step(answer)
        assert terminated
        assert observation in env.observation_space


def test_gymnasium_accepts_it_by_its_id() -> None:
    spec = gymnasium.envs.registration.EnvSpec("test/Countdown-v0", entry_point="ragen_envs.countdown:Countdown")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(spec, disable_env_checker=True).unwrapped)
    assert gymnasium.make(spec, counts=[2], target_range=[1, 50]).reset(seed=1)[0].count(",") == 1


def test_a_model_answers_in_one_turn() -> None:
    env = AgentTurns(Countdown(), max_turns=1, max_actions_per_turn=1, max_actions=1)
    message, _ = env.reset(seed=0)
    assert env.unwrapped.instruction in message and "Numbers: " in message
    assert "Actions:" not in message.splitlines()  # free text: there is no list of them
    answer = solve(env.unwrapped.numbers, env.unwrapped.target)
    message, reward, terminated, truncated, info = env.step(f"<think>hm</think><answer>{answer}</answer>")
    assert (reward, terminated, truncated, info["success"]) == (1.0, True, False, True)
    assert info["actions"] == (answer,)
    env.reset(seed=0)
    _, reward, terminated, truncated, info = env.step("<think>hm</think><answer>no idea</answer>")
    assert (reward, terminated, truncated, info["limit"]) == (-0.1, False, True, "turns")


def test_picture_shows_the_answer() -> None:
    env = Countdown(render_mode="rgb_array")
    env.reset(seed=0)
    before = env.render()
    env.step("1 + 1")
    after = env.render()
    assert isinstance(before, np.ndarray) and isinstance(after, np.ndarray)
    assert before.shape == after.shape == (480, 640, 3)
    assert (before != after).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"counts": 1}, "counts=1 must be"),
        ({"counts": ()}, r"counts=\(\) must be"),
        ({"counts": (3, 7)}, r"counts=\(3, 7\) must be one or more integers from 2 to 6"),
        ({"counts": (3.5,)}, r"counts=\(3.5,\)"),
        ({"number_range": (0, 9)}, r"number_range=\(0, 9\) must be two integers, 1 <= low"),
        ({"number_range": (9, 1)}, r"number_range=\(9, 1\)"),
        ({"number_range": (1.0, 9)}, r"number_range=\(1.0, 9\)"),
        ({"number_range": (1, 10**7)}, "high <= 1000000"),
        ({"target_range": (10,)}, r"target_range=\(10,\) must be two integers"),
        ({"operators": "+^"}, r"operators='\+\^' must be some of"),
        ({"operators": ""}, "operators=''"),
        ({"render_mode": "human"}, "render_mode='human'"),
        (
            {"operators": "+", "number_range": (50, 99), "target_range": (1, 99)},
            r"over 3 numbers from \(50, 99\).*'\+' has its value in \(1, 99\); widen a range or allow more operators",
        ),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ragen_envs.countdown.env.MAX_TRIES", 500)  # three numbers from 50 never have a sum up to 99
    with pytest.raises(ValueError, match=message):
        Countdown(**arguments)
