"""Every ending of an episode in the table of ``rollout/loop.py``, at its exact boundary; and resets that fail."""

from collections.abc import Iterator
from threading import Event
from typing import Any

import pytest
from gymnasium import make

import ragen_envs
from ragen_envs import EnvError
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout import loop
from ragen_trl.rollout.env_executor import EnvExecutor
from ragen_trl.rollout.episode import measure
from ragen_trl.rollout.interfaces import Penalties, Start
from ragen_trl.rollout.loop import EnvResetError, play
from tests.support.ragen_trl.fake_envs import Faulty, Quiz, Slow
from tests.support.ragen_trl.talkers import CHAT, Shelf, Talker, starts

FIRST, THEN = len(CHAT.start("0x")), len(CHAT.extend(5, "1xx"))  # prompts of Quiz(n, padding=1)


@pytest.fixture
def gate() -> Iterator[Event]:
    """Holds a hanging environment until the test is over."""
    event = Event()
    yield event
    event.set()


@pytest.mark.parametrize("workers", [0, 4])
def test_a_crash_ends_its_episode_and_no_other(workers: int) -> None:
    envs, shelf = [Quiz(3), Faulty(3, crashes=[2]), Quiz(1)], Shelf(Quiz(1))
    healthy, crashed, short = play(envs, Talker(), starts(3), executor=EnvExecutor(workers), renew=shelf.renew)
    assert (len(healthy.turns), healthy.terminated, len(short.turns)) == (3, True, 1)
    assert (crashed.terminated, crashed.truncated, crashed.limit) == (False, True, "crash")
    assert [turn.reward for turn in crashed.turns] == [1.0, -2.0]
    error = crashed.turns[1].info["error"]
    assert error.startswith("Traceback")
    assert error.endswith("ConnectionError: nobody answers at 2\n")
    assert "error" not in crashed.turns[0].info
    assert shelf.failed == [(envs[1], "crash")]


def test_a_failed_turn_has_its_tokens_and_nothing_to_be_valued_behind_it() -> None:
    (crashed,) = play([Faulty(3, crashes=[2])], Talker(), starts(1))
    (whole,) = play([Quiz(3)], Talker(), starts(1))
    assert crashed.turns[1].prompt_ids == whole.turns[1].prompt_ids
    assert (crashed.turns[1].reply_ids, crashed.turns[1].logprobs) == ((5, 5, 5), (-1.0, -1.0, -1.0))
    assert (crashed.turns[1].observation, crashed.turns[1].state) == ("1xxxx", "1xxxx")
    assert crashed.token_ids == whole.token_ids[: len(crashed.token_ids)]
    assert crashed.next_prompt_ids == ()
    assert not crashed.success


def test_a_step_over_its_time_ends_its_episode_and_no_other(gate: Event) -> None:
    envs, shelf = [Faulty(2, hangs=[1], gate=gate), Quiz(2)], Shelf(Quiz(1))
    hung, healthy = play(envs, Talker(), starts(2), executor=EnvExecutor(timeout=0.1), renew=shelf.renew)
    assert (len(hung.turns), hung.terminated, hung.truncated, hung.limit) == (1, False, True, "timeout")
    assert hung.episode_return == -2.0
    assert hung.turns[0].info["error"].startswith("no answer within 0.1 s")
    assert "_perhaps_fail" in hung.turns[0].info["error"]
    assert (len(healthy.turns), healthy.terminated) == (2, True)
    assert shelf.failed == [(envs[0], "timeout")]


class Malformed(Quiz):
    """Answers as environments did before Gymnasium."""

    def step(self, action: str) -> Any:
        return super().step(action)[:4]


def test_an_answer_that_is_none_is_a_crash() -> None:
    (trajectory,) = play([Malformed(2)], Talker(), starts(1))
    assert trajectory.limit == "crash"
    assert "not enough values to unpack" in trajectory.turns[0].info["error"]


def test_a_reset_that_fails_is_tried_in_a_new_environment() -> None:
    broken, shelf = Faulty(2, crashes=[0]), Shelf(spare := Quiz(4))
    one, two = play([broken, Quiz(2)], Talker(), starts(2), renew=shelf.renew)
    assert shelf.failed == [(broken, "crash")]
    assert spare.resets == [(10, None)]
    assert (len(one.turns), one.seed, len(two.turns)) == (4, 10, 2)


def test_a_reset_that_hangs_is_tried_in_a_new_environment(gate: Event) -> None:
    shelf = Shelf(Quiz(2))
    (trajectory,) = play(
        [Faulty(2, hangs=[0], gate=gate)], Talker(), starts(1), executor=EnvExecutor(timeout=0.1), renew=shelf.renew
    )
    assert (len(trajectory.turns), trajectory.terminated) == (2, True)


def test_a_failure_costs_what_was_asked_for() -> None:
    (trajectory,) = play([Faulty(2, crashes=[1])], Talker(), starts(1), penalties=Penalties(failure=-0.25))
    assert trajectory.episode_return == -0.25


def test_a_policy_without_a_reply_ends_its_row_before_the_environment_hears_of_it() -> None:
    envs = [Quiz(3), Quiz(3), Quiz(1)]
    policy = Talker(chat=None, errors=[(0, 1), (1, 2)])
    early, late, whole = play(envs, policy, starts(3), penalties=Penalties(cut=-9.0, failure=-9.0))
    assert [(row.limit, row.truncated, row.terminated) for row in (early, late)] == [("error", True, False)] * 2
    assert [turn.reward for turn in early.turns] == [0.0]
    assert [turn.reward for turn in late.turns] == [1.0, 0.0]
    assert (early.turns[-1].info["error"], late.turns[-1].info["error"]) == ("429 for row 0", "429 for row 1")
    assert [len(env.answers) for env in envs] == [0, 1, 1]
    assert (late.next_prompt_ids, whole.limit, policy.asked) == ((), "", [1, 2, 1])


class Crashing(ragen_envs.AgentTurns):
    """Dies in its second turn."""

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        if self._turns_taken == 1:
            raise OSError("gone")
        return super().step(action)


def test_a_turn_that_nobody_read_blames_the_agent_for_nothing() -> None:
    """Its replies are no replies at all, which costs it the first turn; what it did then, the second did not repeat."""
    env = Crashing(make("ragen/Sokoban-v0", disable_env_checker=True), think=False)
    policy = ScriptedPolicy(lambda env, rng: "<answer>Up</answer>")
    (trajectory,) = play([env], policy, [Start(3)])
    first, last = (turn.info for turn in trajectory.turns)
    assert set(last) == {*first, "error"}
    assert (first["num_actions"], last["num_actions"], last["actions"]) == (1, 0, ())
    assert (last["format_is_valid"], last["action_is_valid"], last["format_penalty"]) == (True, True, 0.0)
    assert (last["limit"], trajectory.limit) == ("crash", "crash")
    measured = measure(trajectory)
    assert (measured["success"], measured["turns"], measured["actions"]) == (0.0, 2.0, 1.0)
    assert measured["return"] == pytest.approx(first["env_reward"] - 2.0)


def test_a_cut_reply_is_played_and_trained_and_may_cost() -> None:
    policy = Talker(tokens=2)
    free, dear = (play([Quiz(2)], policy, starts(1), penalties=Penalties(cut=cut))[0] for cut in (0.0, -0.5))
    assert [turn.cut for turn in free.turns] == [True, True]
    assert free.turns[0].reply_ids == (5, 5)
    assert sum(free.action_mask) == 4
    assert (free.terminated, free.episode_return, dear.episode_return) == (True, 3.0, 2.0)
    assert [turn.info.get("cut_penalty") for turn in dear.turns] == [-0.5, -0.5]
    assert "cut_penalty" not in free.turns[0].info
    assert free.token_ids == dear.token_ids


def test_a_reply_as_long_as_its_limit_is_cut_only_if_it_did_not_end() -> None:
    cut = Penalties(cut=-0.5)
    returns = [play([Quiz(1)], Talker(tokens=n), starts(1), penalties=cut)[0].episode_return for n in (2, 3, 4)]
    assert returns == [0.5, 1.0, 1.0]


def test_a_cut_reply_in_which_the_environment_fails_costs_both() -> None:
    env, penalties = Faulty(2, crashes=[1]), Penalties(cut=-0.5, failure=-1.0)
    assert play([env], Talker(tokens=2), starts(1), penalties=penalties)[0].episode_return == -1.5


@pytest.mark.parametrize("budget", ["trajectory", "model"])
@pytest.mark.parametrize(
    ("room", "replies", "limit"),
    [
        (2, (2,), "context"),  # the first reply is cut, and nothing fits after it
        (3, (3,), "context"),
        (3 + THEN, (3,), "context"),  # the second prompt fits, a reply to it does not
        (3 + THEN + 1, (3, 1), ""),  # a token does; it ends the quiz
        (3 + THEN + 2, (3, 2), ""),
        (3 + THEN + 3, (3, 3), ""),  # the reply ends by itself
        (3 + THEN + 4, (3, 3), ""),
    ],
)
def test_what_the_tightest_budget_leaves(budget: str, room: int, replies: tuple[int, ...], limit: str) -> None:
    """Room after the first prompt, for replies of three tokens."""
    policy = Talker(max_context=FIRST + room if budget == "model" else None)
    max_length = room if budget == "trajectory" else None
    (trajectory,) = play([Quiz(2, padding=1)], policy, starts(1), max_length)
    assert tuple(len(turn.reply_ids) for turn in trajectory.turns) == replies
    assert tuple(turn.cut for turn in trajectory.turns) == tuple(length < 3 for length in replies)
    assert (trajectory.limit, trajectory.truncated, trajectory.terminated) == (limit, bool(limit), not limit)
    assert len(trajectory.token_ids) <= FIRST + room
    unseen = tuple(CHAT.extend(5, "1xx")) if limit else ()
    left = room - sum(replies) if budget == "model" else None  # a prompt that the model cannot read whole is cut, too
    assert trajectory.next_prompt_ids == unseen[:left]


def test_the_end_of_the_task_prevails_over_a_full_context() -> None:
    (trajectory,) = play([Quiz(1, padding=1)], Talker(), starts(1), 3)
    assert (trajectory.terminated, trajectory.limit, trajectory.turns[0].cut) == (True, "", False)


def test_trajectories_do_not_depend_on_the_number_of_threads() -> None:
    """Crashes among them, whose tracebacks are part of a trajectory."""

    def played(workers: int) -> Any:
        envs = [
            *(Slow(1 + row % 4, 0.02) for row in range(16)),
            *(Faulty(3, crashes=[row % 3 + 1]) for row in range(4)),
        ]
        return play(envs, Talker(), starts(20), 60, EnvExecutor(workers), Penalties(cut=-0.1))

    inline = played(0)
    assert {trajectory.limit for trajectory in inline} == {"", "crash", "context"}
    assert played(1) == inline
    assert played(64) == inline


def test_a_successor_that_cannot_be_made_costs_no_other_episode() -> None:
    def renew(env: Any, failure: Any) -> Any:
        raise ConnectionError("nobody there")

    trajectories = play([Faulty(3, crashes=[1]), Quiz(3)], Talker(), [Start(0), Start(1)], renew=renew)
    assert [trajectory.limit for trajectory in trajectories] == ["crash", ""]
    assert len(trajectories[1].turns) == 3


def test_a_reset_that_never_works_is_an_error_with_seed_and_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """No episode, no turn: there is nothing that could be recorded."""
    monkeypatch.setattr(loop, "PAUSES", (0.0, 0.0))
    shelf = Shelf(Faulty(2, crashes=[0]))
    with pytest.raises(EnvResetError, match=r"reset\(seed=11\) in 3 attempts.*(?s:.*)nobody answers at 0") as caught:
        play([Quiz(2), Faulty(2, crashes=[0])], Talker(), starts(2), renew=shelf.renew)
    assert isinstance(caught.value.__cause__, ConnectionError)


class Impossible(Quiz):
    """Cannot be played with these values."""

    def reset(self, **_: Any) -> Any:
        raise GoalMissingError("there is no goal 7; take one of 0 to 3")


class GoalMissingError(EnvError, ValueError):
    pass


def test_wrong_values_are_not_tried_again_and_have_no_traceback() -> None:
    """`renew` would raise."""
    with pytest.raises(EnvResetError) as caught:
        play([Quiz(2), Impossible(2)], Talker(), starts(2), renew=lambda env, failure: 1 / 0)
    assert str(caught.value) == "no episode could start at reset(seed=11): there is no goal 7; take one of 0 to 3"


def test_resets_are_tried_until_a_server_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A successor that cannot be made either is no end of it."""
    monkeypatch.setattr(loop, "PAUSES", (0.0, 0.0, 0.0))
    answers: list[Any] = [ConnectionError("nobody there"), Faulty(2, crashes=[0]), Quiz(4)]

    def renew(env: Any, failure: Any) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    class StaysDown(Faulty):
        def reset(self, **options: Any) -> Any:
            raise ConnectionError("nobody answers")

    one, two = play([StaysDown(2), Quiz(2)], Talker(), starts(2), renew=renew)
    assert (len(one.turns), len(two.turns), answers) == (4, 2, [])


def test_an_environment_whose_reset_hangs_is_not_reset_again(monkeypatch: pytest.MonkeyPatch, gate: Event) -> None:
    """A thread is still inside it, so the next attempt waits for another one."""
    monkeypatch.setattr(loop, "PAUSES", (0.0, 0.0))
    began: list[Any] = []

    class Hanging(Quiz):
        def reset(self, **options: Any) -> Any:
            began.append(self)
            gate.wait(60)
            return super().reset(**options)

    def renew(env: Any, failure: Any) -> Any:
        if isinstance(answers[0], Exception):
            raise answers.pop(0)
        return answers.pop(0)

    executor, hung = EnvExecutor(timeout=0.1), Hanging(2)
    answers: list[Any] = [ConnectionError("nobody there"), Quiz(4)]
    (trajectory,) = play([hung], Talker(), starts(1), executor=executor, renew=renew)
    assert (len(trajectory.turns), began) == (4, [hung])
    answers += [ConnectionError("nobody there")] * 2
    with pytest.raises(EnvResetError, match=r"reset\(seed=10\) in 3 attempts \(timeout\)"):
        play([hung], Talker(), starts(1), executor=executor, renew=renew)
    assert began == [hung, hung]


def test_without_a_way_to_renew_a_reset_is_not_repeated() -> None:
    with pytest.raises(EnvResetError, match=r"reset\(seed=10\) \(crash\)"):
        play([Faulty(2, crashes=[0])], Talker(), starts(1))
