"""Evaluation: fixed seeds, and the random and oracle rows against values computed another way."""

import math
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import pytest

import ragen_envs
from ragen_envs import baselines
from ragen_trl import StarPOConfig
from ragen_trl.evaluation.evaluator import (
    RESTATED,
    EpisodeRecord,
    EvaluationError,
    evaluate,
    held_out_starts,
    judged,
    summarise,
)
from ragen_trl.evaluation.intervals import rate_interval
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import make_turns
from ragen_trl.rollout.episode import measure
from ragen_trl.rollout.interfaces import TurnEnv
from ragen_trl.rollout.seeds import SeedOverlapError
from ragen_trl.trajectory import Trajectory, Turn

LAKE = "ragen/FrozenLake-v0"
FIRM: dict[str, Any] = {"env_kwargs": {"is_slippery": False, "frozen_prob": 0.9}}


def config(**values: Any) -> StarPOConfig:
    quiet = {"bf16": False, "use_cpu": True, "report_to": "none", "max_completion_length": 400}
    return StarPOConfig(output_dir="unused", think=False, **{**quiet, **values})


def without_time(result: Any) -> dict[str, float]:
    return {key: value for key, value in result.as_dict().items() if key != "seconds"}


class Diary:
    """A scripted policy that notes, for each episode, the start state and a number drawn with the sampling seed."""

    def __init__(self) -> None:
        self.pages: list[tuple[str, int]] = []
        self.policy = ScriptedPolicy(self.write)

    def write(self, env: TurnEnv, random: np.random.Generator) -> str:
        drawn = int(random.integers(10**9))
        self.pages.append((env.env.render() or "", drawn))  # type: ignore[attr-defined]
        return "<answer>Left</answer>"


def diary(episodes: int, batch_size: int = 128) -> list[tuple[str, int]]:
    """Start map and drawn number of each evaluation episode, in order."""
    book = Diary()
    env_kwargs = {**FIRM["env_kwargs"], "render_mode": "ansi"}
    evaluate(book.policy, LAKE, config(env_kwargs=env_kwargs, max_turns=1), episodes, batch_size)
    return book.pages


def episode(
    rewards: list[float], valid: list[bool], success: bool, truncated: bool = False, seed: int = 0
) -> Trajectory:
    infos = [{"format_is_valid": True, "action_is_valid": ok, "num_actions": 2, "success": success} for ok in valid]
    turns = [Turn((1,), (2, 3), (), "", "", r, info) for r, info in zip(rewards, infos, strict=True)]
    return Trajectory(tuple(turns), seed=seed, terminated=not truncated, truncated=truncated)


def test_a_summary_by_hand() -> None:
    one, two = episode([0.0, 1.0], [True, True], True), episode([-0.1], [False], False, truncated=True, seed=1)
    result = summarise([one, two], seconds=3.0)
    assert (result.n, result.success, result.truncated, result.seconds) == (2, 0.5, 0.5, 3.0)
    assert result.mean_return == pytest.approx(0.45)
    assert result.return_stderr == pytest.approx(0.55)  # std of (1, −0.1) is 1.1 / √2
    assert result.action_valid == pytest.approx(2 / 3)  # of turns, not of episodes
    assert (result.format_valid, result.turns, result.actions, result.reply_tokens) == (1.0, 1.5, 3.0, 3.0)
    assert (result.success_low, result.success_high) == baselines.wilson_interval(1, 2)
    assert measure(one)["action_valid"] == 1.0
    assert measure(two) == {
        **{"success": 0.0, "return": -0.1, "format_valid": 1.0, "action_valid": 0.0},
        **{"turns": 1.0, "actions": 2.0, "reply_tokens": 2.0, "truncated": 1.0},
    }


def test_an_episode_in_which_the_environment_failed_says_nothing_about_the_policy() -> None:
    """Regression: benchmarks, which play themselves, counted it as a failure, `evaluate` left it out."""
    won, lost = episode([1.0], [True], True), episode([0.0], [True], False, truncated=True, seed=1)
    info = {**lost.turns[-1].info, "error": "the store is gone"}
    crashed = replace(lost, limit="crash", turns=(replace(lost.turns[0], info=info),))
    assert (summarise([won, lost]).success, summarise([won, lost]).left_out) == (0.5, 0)
    assert (summarise([won, crashed]).success, summarise([won, crashed]).left_out) == (1.0, 1)
    with pytest.raises(EvaluationError, match="all of 1 episodes failed without the policy.*the store is gone"):
        summarise([crashed])


def test_one_episode_has_no_standard_error() -> None:
    assert summarise([episode([1.0], [True], True)]).return_stderr == 0.0


def test_samples_of_a_start_state_by_hand() -> None:
    """Start 0: two successes of two; start 1: one of two; start 2: only one episode, which failed, so no pass@2."""
    outcomes = [(0, True), (0, True), (1, True), (1, False), (2, False)]
    result = summarise([episode([float(won)], [True], won, seed=seed) for seed, won in outcomes])
    assert (result.n, result.samples, result.success) == (5, 2, 0.6)
    assert {k: (found["value"], found["starts"]) for k, found in result.pass_at_k.items()} == {
        "1": (0.75, 2),
        "2": (1.0, 2),
    }
    assert (result.success_low, result.success_high) == rate_interval([2, 1, 0], [2, 2, 1])
    # residuals t - 0.6 n: 0.8, -0.2, -0.6; 3/2 times their squares over 5²
    assert result.return_stderr == pytest.approx(math.sqrt(1.5 * 1.04 / 25))
    assert result.in_words().endswith("(n=5, 2 a start state), pass@2 1.000 [0.342, 1.000]")


def test_samples_share_the_start_state_and_neither_outcome_nor_sampling_seed() -> None:
    """The first sample is the episode that an evaluation with one sample plays."""
    book = Diary()
    env_kwargs = {**FIRM["env_kwargs"], "render_mode": "ansi"}
    evaluate(book.policy, LAKE, config(env_kwargs=env_kwargs, max_turns=1), episodes=5, samples=3)
    maps = [page for page, _ in book.pages]
    assert maps[0::3] == maps[1::3] == maps[2::3]
    assert len({drawn for _, drawn in book.pages}) == 15
    assert book.pages[0::3] == diary(5)
    outcomes = [start.outcome_seed for start in held_out_starts(5, samples=3)]
    assert len(set(outcomes)) == 15
    assert outcomes[0::3] == [start.outcome_seed for start in held_out_starts(5)]


def test_a_bandit_of_known_chances_has_the_pass_at_k_that_they_imply() -> None:
    """Random play in Bandit picks the better arm with 1/2, alike from every start: pass@k is 1 - 2^-k."""
    one_shot = config(max_turns=1, max_actions_per_turn=1, max_actions=1)
    found = evaluate("random", "ragen/Bandit-v0", one_shot, episodes=200, samples=4)
    assert found.n == 800
    for k in (1, 2, 4):
        low, high = found.pass_at_k[str(k)]["low"], found.pass_at_k[str(k)]["high"]
        assert low < 1 - 0.5**k < high
        assert high - low < 0.12


def test_a_sample_less_than_one_is_refused() -> None:
    with pytest.raises(EvaluationError, match="batch_size is -1; play at least one"):
        evaluate("random", LAKE, config(), episodes=4, batch_size=-1)
    with pytest.raises(EvaluationError, match="env has 2 environments; evaluate in one at a time"):
        evaluate("random", [LAKE, "ragen/Bandit-v0"], config(), episodes=4)  # type: ignore[arg-type]
    with pytest.raises(EvaluationError, match="samples is 0"):
        evaluate("random", LAKE, config(), episodes=1, samples=0)


@pytest.mark.parametrize("policy", ["random", "oracle"])
def test_the_same_call_twice_agrees_whatever_the_batches(policy: str) -> None:
    first = evaluate(policy, LAKE, config(), episodes=30, batch_size=30)
    again = evaluate(policy, LAKE, config(), episodes=30, batch_size=7)
    assert without_time(first) == without_time(again)


def test_a_model_is_evaluated_alike_twice(tiny_tokenizer: Any, tiny_model: Any) -> None:
    policy = TransformersPolicy(tiny_model, Chat(tiny_tokenizer, reply_prefix="<answer>"), Sampling(max_tokens=5))
    first, again = (evaluate(policy, LAKE, config(), episodes=6, batch_size=size) for size in (6, 4))
    assert without_time(first) == without_time(again)
    assert first.reply_tokens > 0


def test_more_episodes_begin_with_the_same_ones() -> None:
    """512 and 600 held-out episodes share the first 512, with the same start states and sampling seeds."""
    many, few = diary(60), diary(51, batch_size=20)
    assert many[:51] == few
    assert len({drawn for _, drawn in many}) == 60


def test_start_states_are_those_of_the_first_seeds() -> None:
    env = gymnasium.make(LAKE, disable_env_checker=True, **FIRM["env_kwargs"])
    assert [page for page, _ in diary(5)] == [env.reset(seed=seed)[0] for seed in range(5)]


def test_the_oracle_solves_every_firm_lake_and_the_random_policy_few() -> None:
    oracle = evaluate("oracle", LAKE, config(**FIRM), episodes=100)
    assert (oracle.success, oracle.mean_return, oracle.truncated) == (1.0, 1.0, 0.0)
    assert (oracle.format_valid, oracle.action_valid) == (1.0, 1.0)
    assert oracle.actions == oracle.turns  # one action a turn
    random = evaluate("random", LAKE, config(**FIRM), episodes=100)
    assert 0.05 < random.success < 0.5
    assert random.success_high < oracle.success_low


def test_the_oracle_reaches_on_slippery_ice_what_value_iteration_promises() -> None:
    """Mean over the start states of the optimal success probability within ten actions, by dynamic programming."""
    count, horizon = 300, 10
    env = gymnasium.make(LAKE, disable_env_checker=True).unwrapped
    assert isinstance(env, ragen_envs.FrozenLake)
    chances = []
    for seed in range(count):
        env.reset(seed=seed)
        value = [float(tile == "G") for tile in env.lake.tiles]
        for _ in range(horizon):
            value = [
                max(sum(p * value[to] for p, to in env.lake.transitions(tile, action)) for action in env.actions)
                for tile in range(len(value))
            ]
        chances.append(value[env.position])
    found = evaluate("oracle", LAKE, config(), episodes=count).success
    sigma = math.sqrt(sum(p * (1 - p) for p in chances)) / count
    assert abs(found - sum(chances) / count) < 4 * sigma


@pytest.mark.parametrize(("turns", "per_turn", "total", "budget"), [(5, 5, 10, 10), (2, 1, 10, 2), (2, 3, 10, 6)])
def test_the_baselines_get_the_budget_that_the_policy_has(turns: int, per_turn: int, total: int, budget: int) -> None:
    """Regression: two turns of one action allow two actions, but the random row and the oracle were given ten."""
    limits = {"max_turns": turns, "max_actions_per_turn": per_turn, "max_actions": total}
    kwargs = {"env_kwargs": {"size": 8, "is_slippery": False, "frozen_prob": 1.0}}
    result = evaluate("oracle", LAKE, config(**limits, **kwargs), episodes=60)
    expected = []
    for seed in range(60):  # without holes the shortest path is the Manhattan distance
        env = make_turns(LAKE, config(**kwargs))
        env.reset(seed=seed)
        lake, position = env.unwrapped.lake, env.unwrapped.position  # type: ignore[attr-defined]
        goal = lake.tiles.index("G")
        expected.append(abs(goal // 8 - position // 8) + abs(goal % 8 - position % 8) <= budget)
    assert result.success == pytest.approx(np.mean(expected))


def test_bandit_rows_are_known() -> None:
    one_shot = config(max_turns=1, max_actions_per_turn=1, max_actions=1)
    oracle = evaluate("oracle", "ragen/Bandit-v0", one_shot, episodes=256)
    random = evaluate("random", "ragen/Bandit-v0", one_shot, episodes=256)
    assert oracle.success == 1.0
    assert abs(random.success - 0.5) < 4 * math.sqrt(0.25 / 256)
    assert abs(oracle.mean_return - 0.25) < 4 * math.sqrt(0.1875 / 256)


@pytest.mark.parametrize("policy", ["random", "oracle"])
@pytest.mark.parametrize("env", [LAKE, "ragen/Bandit-v0", "ragen/Sokoban-v0"])
def test_rows_are_those_of_the_baselines_command(env: str, policy: str) -> None:
    """The same episodes, seed for seed: start state, outcome seed and sampling seed."""
    horizon = baselines.HORIZONS[env]
    found = evaluate(policy, env, config(max_turns=horizon, max_actions_per_turn=1, max_actions=horizon), episodes=128)
    row = baselines.measure(env, policy, episodes=128)
    assert (found.n, found.success, found.success_low, found.success_high) == (row.n, row.success, row.low, row.high)
    assert (found.mean_return, found.return_stderr) == pytest.approx((row.mean_return, row.return_stderr))
    assert found.actions == row.mean_length


def test_failed_episodes_whose_thoughts_only_restate_the_request_are_counted() -> None:
    def record(success: bool, *thoughts: str) -> EpisodeRecord:
        info = {
            **dict.fromkeys(("format_is_valid", "action_is_valid"), True),
            **{
                "num_actions": 1,
                "success": success,
                "request": "a red shirt",
                "faults": () if success else ("too dear",),
            },
        }
        turns = tuple(Turn((0,), (1,), (), "?", f"<think>{thought}</think>", 0.0, info) for thought in thoughts)
        return EpisodeRecord.of(Trajectory(turns, seed=0, terminated=True))

    assert record(False, "They want a shirt.", "A red shirt!").faults == ("too dear", RESTATED)
    assert record(False, "They want a shirt.", "The blue one is cheaper.").faults == ("too dear",)
    assert record(False, "").faults == ("too dear",)
    assert record(True, "They want a shirt.").faults == ()


def test_types_of_tasks_are_reported_apart() -> None:
    """Counts by hand; the interval of a type is that of its own start states."""
    measures = dict.fromkeys(("return", "turns", "format_valid", "action_valid", "actions"), 1.0)
    measures |= {"reply_tokens": 0.0, "truncated": 0.0}
    kinds = {"heat": [1.0, 0.0, 0.0, 1.0], "cool": [1.0], "": [0.0, 0.0]}
    pairs = [(kind, success) for kind, found in kinds.items() for success in found]
    records = [
        EpisodeRecord(seed, "", {**measures, "success": success}, task_type=kind)
        for seed, (kind, success) in enumerate(pairs)
    ]
    found = judged(records, 0.0)
    assert (found.n, found.success) == (7, pytest.approx(3 / 7))
    low, high = baselines.wilson_interval(2, 4)
    assert list(found.task_types) == ["cool", "heat"]
    assert found.task_types["heat"] == pytest.approx({"n": 4, "success": 0.5, "success_low": low, "success_high": high})
    assert (found.task_types["cool"]["n"], found.task_types["cool"]["success"]) == (1, 1.0)
    assert judged(records[-2:], 0.0).task_types == {}


def test_faults_are_counted_where_an_environment_names_them() -> None:
    played = evaluate("random", "ragen/ToyShop-v0", config(), episodes=40)
    assert played.faults["no purchase"] == pytest.approx(played.truncated)
    assert list(played.faults.values()) == sorted(played.faults.values(), reverse=True)
    assert {"wrong kind", "wrong color"} <= set(played.faults) and max(played.faults.values()) <= 1 - played.success
    assert evaluate("oracle", "ragen/ToyShop-v0", config(), episodes=5).faults == {}
    assert evaluate("random", "ragen/FrozenLake-v0", config(), episodes=5).faults == {}


def test_an_environments_own_score_is_averaged_where_there_is_one() -> None:
    """Whatever the reward: with `success` a purchase that is nearly right pays nothing, and scores."""
    played = evaluate("random", "ragen/ToyShop-v0", config(env_kwargs={"reward": "success"}), episodes=40)
    assert played.score is not None and played.success < played.score < 1
    assert evaluate("oracle", "ragen/ToyShop-v0", config(env_kwargs={}), episodes=5).score == 1.0
    assert evaluate("random", "ragen/FrozenLake-v0", config(), episodes=5).score is None


def test_a_score_of_some_episodes_only_is_none() -> None:
    """Folders of earlier versions have episodes without it, to which others are added."""
    measures = measure(episode([1.0], [True], True))
    records = [EpisodeRecord(0, "", {**measures, "task_score": 0.5}), EpisodeRecord(1, "", measures)]
    assert judged(records, 0.0).score is None and judged(records[:1], 0.0).score == 0.5


def test_a_result_outlives_environments_that_cannot_be_closed() -> None:
    """Regression: the server of a client that had died raised from ``close``, and what was played was lost."""

    class Unclosed(ragen_envs.Bandit):
        def close(self) -> None:
            raise ConnectionError("the server is gone")

    found, expected = (evaluate("random", env, config(), episodes=8) for env in (Unclosed, "ragen/Bandit-v0"))
    assert without_time(found) == without_time(expected)


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ValueError, match="policy is 'best'; pass 'random', 'oracle' or a policy object"):
        evaluate("best", LAKE, config(), episodes=1)


@pytest.mark.parametrize("episodes", [0, 10_001])
def test_evaluation_never_leaves_its_seeds(episodes: int) -> None:
    with pytest.raises(SeedOverlapError, match=f"{episodes} evaluation episodes"):
        evaluate("random", LAKE, config(), episodes)
