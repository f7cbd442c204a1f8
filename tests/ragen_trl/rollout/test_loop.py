"""Rollout: who is asked when, what is recorded, what a group shares, and every ending in the table of `loop.py`."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from gymnasium import make

import ragen_envs
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout import loop
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.contexts import ContextRule
from ragen_trl.rollout.env_executor import EnvExecutor, Failure
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start, TurnEnv
from ragen_trl.rollout.loop import EnvResetError, play
from tests.support.ragen_trl.chat_families import FAMILIES
from tests.support.ragen_trl.fake_envs import Faulty, Quiz, quizzes

CHAT = Chat(FAMILIES["chatml"].tokenizer())


class Talker(Policy):
    """Says "row n" in tokens, now and then has nothing to say, and keeps a diary.

    A reply ends by itself after ``ends_after`` tokens; with fewer, as many as ``tokens`` or the room allow, it is cut.
    ``errors`` are (row, turn) of requests that fail.
    """

    def __init__(
        self,
        chat: Chat | None = CHAT,
        tokens: int = 9,
        ends_after: int = 3,
        max_context: int | None = None,
        errors: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.chat, self.max_context = chat, max_context
        self.tokens, self.ends_after, self.errors = tokens, ends_after, errors
        self.seeds: list[int] = []
        self.asked: list[list[int]] = []  # the rows of every call
        self.ended: list[list[int]] = []

    def begin(self, seeds: Sequence[int]) -> None:
        self.seeds, self.asked, self.ended = list(seeds), [], []

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        self.asked.append([request.row for request in requests])
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Reply:
        if (request.row, sum(request.row in rows for rows in self.asked)) in self.errors:
            return Reply("", error=f"429 for row {request.row}")
        room = self.tokens if request.room is None else min(self.tokens, request.room)
        length = min(self.ends_after, room)
        ids, logprobs = ((5,) * length, (-1.0,) * length) if self.chat else ((), ())
        return Reply(f"row {request.row}", ids, logprobs, cut=length < self.ends_after)

    def end(self, rows: Sequence[int]) -> None:
        self.ended.append(list(rows))


def starts(count: int) -> list[Start]:
    return [Start(seed=10 + row, sampling_seed=30 + row) for row in range(count)]


class Shelf:
    """New environments for those that failed, and a record of what was asked for."""

    def __init__(self, *spares: TurnEnv) -> None:
        self.spares = list(spares)
        self.failed: list[tuple[TurnEnv, str]] = []

    def renew(self, env: TurnEnv, failure: Failure) -> TurnEnv:
        self.failed.append((env, failure.kind))
        return self.spares.pop(0)


def test_rows_that_wait_begin_as_others_finish() -> None:
    """And no environment is reset before: one that a server holds would idle until a place is free."""
    envs, begun = quizzes((2, 1, 3, 1, 2)), []

    class Watching(Talker):
        def reply(self, requests: Sequence[Request]) -> list[Reply]:
            begun.append(sum(len(env.resets) for env in envs))
            return super().reply(requests)

    talker = Watching()
    trajectories = play(envs, talker, starts(5), batch_size=2)
    assert talker.seeds == [30, 31, 32, 33, 34]
    assert talker.asked == [[0, 1], [0, 2], [2, 3], [2, 4], [4]]
    assert begun == [2, 3, 4, 5, 5]
    assert talker.ended == [[1], [0], [3], [2], [4]]
    assert [len(trajectory.turns) for trajectory in trajectories] == [2, 1, 3, 1, 2]
    assert [trajectory.seed for trajectory in trajectories] == [10, 11, 12, 13, 14]
    assert [trajectory.turns[0].reply for trajectory in trajectories] == [f"row {row}" for row in range(5)]


def test_seeds_reach_the_environment_and_the_dice_and_are_recorded() -> None:
    envs, talker = [Quiz(1), Quiz(1)], Talker()
    trajectories = play(envs, talker, [Start(1, outcome_seed=2, sampling_seed=3), Start(4, sampling_seed=5)])
    assert [env.resets for env in envs] == [[(1, {"outcome_seed": 2})], [(4, None)]]
    assert talker.seeds == [3, 5]
    assert [(trajectory.seed, trajectory.outcome_seed) for trajectory in trajectories] == [(1, 2), (4, None)]


@pytest.mark.parametrize("truncates", [True, False])
def test_an_end_keeps_gymnasiums_meaning(truncates: bool) -> None:
    (trajectory,) = play([Quiz(2, truncates)], Talker(), starts(1))
    assert (trajectory.terminated, trajectory.truncated) == (not truncates, truncates)
    assert trajectory.limit == ("turns" if truncates else "")
    assert [(turn.observation, turn.reward) for turn in trajectory.turns] == [("0xxx", 1.0), ("1xxxx", 2.0)]
    # The question after the last answer: a critic reads it to say what the rest was worth.
    assert trajectory.next_prompt_ids == (tuple(CHAT.extend(5, "2xxxxx")) if truncates else ())


def test_what_would_have_been_shown_next_closes_a_turn_that_the_policy_left_open() -> None:
    """A reply that ended by itself has its end-of-turn token already, one that was cut gets it here."""

    class Closing(Talker):
        def _reply(self, request: Request) -> Reply:
            end = CHAT.end_of_turn_id
            assert end is not None
            return Reply("done", (5, end), (-1.0, -1.0))

    (left_open,) = play([Quiz(1, truncates=True)], Talker(), starts(1))
    (closed,) = play([Quiz(1, truncates=True)], Closing(), starts(1))
    assert left_open.next_prompt_ids == (CHAT.end_of_turn_id, *closed.next_prompt_ids)


def test_a_turns_state_is_what_the_environment_itself_shows() -> None:
    """Messages carry turn numbers and actions left: no two of them are alike, and no state would be met twice."""
    env = ragen_envs.AgentTurns(make("ragen/FrozenLake-v0", disable_env_checker=True, is_slippery=False), think=False)
    bare = make("ragen/FrozenLake-v0", disable_env_checker=True, is_slippery=False)
    policy = ScriptedPolicy(lambda env, random: "<answer>Left</answer>")
    (trajectory,) = play([env], policy, [Start(3)])
    shown, _ = bare.reset(seed=3)
    expected = []
    for _ in trajectory.turns:
        expected.append(shown)
        shown, *_ = bare.step("Left")
    assert [turn.state for turn in trajectory.turns] == expected
    assert len({turn.observation for turn in trajectory.turns}) == len(trajectory.turns) > 2
    assert len(set(expected)) < len(expected)  # at the left edge nothing moves


def test_a_window_gives_a_turn_the_context_that_it_can_see_and_the_room_that_this_leaves() -> None:
    """Contexts of two turns: from the third on they are rebuilt, and no longer than they are."""

    class Reader(Talker):
        def reply(self, requests: Sequence[Request]) -> list[Reply]:
            self.read = [*getattr(self, "read", []), *requests]
            return super().reply(requests)

    turns = ragen_envs.AgentTurns(ragen_envs.Bandit(), max_turns=4, max_actions=4, max_actions_per_turn=1, think=False)
    turns.step = lambda reply: ("next", 0.0, len(reader.read) == 4, False, {})  # type: ignore[assignment,method-assign]
    reader = Reader(max_context=4000)
    (trajectory,) = play([turns], reader, starts(1), rule=ContextRule(2))
    assert [turn.context_ids is None for turn in trajectory.turns] == [True, True, False, False]
    before = 0
    for place, (request, turn) in enumerate(zip(reader.read, trajectory.turns, strict=True)):
        context = before if turn.context_ids is None else len(turn.context_ids)
        assert request.room == 4000 - context - len(turn.prompt_ids)
        before = context + len(turn.prompt_ids) + len(turn.reply_ids)
        if place >= 2:
            assert turn.context_ids is not None
            assert turn.context_ids == (*CHAT.start(turns.opening), *trajectory.turns[place - 1].reply_ids)


# Every ending of an episode in the table of ``rollout/loop.py``, at its exact boundary; and resets that fail


FIRST, THEN = len(CHAT.start("0x")), len(CHAT.extend(5, "1xx"))  # prompts of Quiz(n, padding=1)


@pytest.mark.parametrize("workers", [0, 4])
def test_a_crash_ends_its_episode_and_no_other(workers: int) -> None:
    envs, shelf = [Quiz(3), Faulty(3, crashes=[2]), Quiz(1)], Shelf(Quiz(1))
    healthy, crashed, short = play(envs, Talker(), starts(3), executor=EnvExecutor(workers), renew=shelf.renew)
    assert (len(healthy.turns), healthy.terminated, len(short.turns)) == (3, True, 1)
    assert (crashed.terminated, crashed.truncated, crashed.limit) == (False, True, "crash")
    assert [turn.reward for turn in crashed.turns] == [1.0, 0.0]
    error = crashed.turns[1].info["error"]
    assert error.startswith("Traceback")
    assert error.endswith("ConnectionError: nobody answers at 2\nin Faulty at turn 2 after reset(seed=11)\n")
    assert "error" not in crashed.turns[0].info
    assert shelf.failed == [(envs[1], "crash")]
    # The failed turn has its tokens, and there is nothing to be valued behind it.
    same = {"reply": "row 0", "reward": 2.0, "info": healthy.turns[1].info}
    assert replace(crashed.turns[1], **same) == healthy.turns[1]
    assert crashed.token_ids == healthy.token_ids[: len(crashed.token_ids)]
    assert (crashed.next_prompt_ids, crashed.success) == ((), False)


def test_a_step_over_its_time_ends_its_episode_and_no_other(gate: Event) -> None:
    envs, shelf = [Faulty(2, hangs=[1], gate=gate), Quiz(2)], Shelf(Quiz(1))
    hung, healthy = play(envs, Talker(), starts(2), executor=EnvExecutor(timeout=0.1), renew=shelf.renew)
    assert (len(hung.turns), hung.terminated, hung.truncated, hung.limit) == (1, False, True, "timeout")
    assert hung.episode_return == 0.0
    assert hung.turns[0].info["error"].startswith("no answer within 0.1 s")
    assert "_perhaps_fail" in hung.turns[0].info["error"]
    assert (len(healthy.turns), healthy.terminated) == (2, True)
    assert shelf.failed == [(envs[0], "timeout")]


def test_a_reset_that_fails_is_tried_in_a_new_environment() -> None:
    broken, shelf = Faulty(2, crashes=[0]), Shelf(spare := Quiz(4))
    one, two = play([broken, Quiz(2)], Talker(), starts(2), renew=shelf.renew)
    assert shelf.failed == [(broken, "crash")]
    assert spare.resets == [(10, None)]
    assert (len(one.turns), one.seed, len(two.turns)) == (4, 10, 2)


def test_a_policy_without_a_reply_ends_its_row_before_the_environment_hears_of_it() -> None:
    envs = [Quiz(3), Quiz(3), Quiz(1)]
    policy = Talker(chat=None, errors=[(0, 1), (1, 2)])
    early, late, whole = play(envs, policy, starts(3), cut_penalty=-9.0)
    assert [(row.limit, row.truncated, row.terminated) for row in (early, late)] == [("error", True, False)] * 2
    assert [turn.reward for turn in early.turns] == [0.0]
    assert [turn.reward for turn in late.turns] == [1.0, 0.0]
    assert (early.turns[-1].info["error"], late.turns[-1].info["error"]) == ("429 for row 0", "429 for row 1")
    assert [len(env.answers) for env in envs] == [0, 1, 1]
    assert (late.next_prompt_ids, whole.limit, policy.asked) == ((), "", [[0, 1, 2], [1]])


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


def test_trajectories_do_not_depend_on_the_number_of_threads() -> None:
    """Crashes among them, whose tracebacks are part of a trajectory."""

    def played(workers: int) -> Any:
        envs = [
            *(Quiz(1 + row % 4, seconds=0.02) for row in range(16)),
            *(Faulty(3, crashes=[row % 3 + 1]) for row in range(4)),
        ]
        return play(envs, Talker(), starts(20), 60, EnvExecutor(workers), -0.1)

    inline = played(0)
    assert {trajectory.limit for trajectory in inline} == {"", "crash", "context"}
    assert played(1) == inline
    assert played(64) == inline


class Odd(Quiz):
    """A quiz whose second turn pays no number, has no such success, or holds half a character."""

    def step(self, action: str) -> Any:
        text, reward, *rest = super().step(action)
        if len(self.answers) != 2:
            return text, reward, *rest
        rest[-1] = {"task_score": math.nan if self.questions == 5 else 1.0}
        return text + "\ud83d" * (self.questions == 4), math.nan if self.questions == 3 else reward, *rest


@pytest.mark.parametrize(
    ("questions", "words"),
    [(3, "the reward is nan, which is not finite"), (4, "no text: 'utf-8'"), (5, "the task_score is nan")],
)
def test_an_answer_that_cannot_be_learnt_from_fails_its_episode_by_name(questions: int, words: str) -> None:
    """Regression: a NaN or half a surrogate pair ended the run, without the seed of the start state."""
    odd, healthy = play([Odd(questions), Quiz(3)], Talker(), starts(2), executor=EnvExecutor(0))
    assert (odd.limit, len(odd.turns), odd.episode_return) == ("crash", 2, 1.0)
    error = odd.turns[1].info["error"]
    assert re.search(rf"{words}.*\nin .*Odd.* at turn 2 after reset\(seed={odd.seed}\)", error)
    assert len(healthy.turns) == 3


def test_a_server_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(loop.time, "sleep", slept.append)
    away = Faulty(2, crashes=[0])

    def renew(env: Any, failure: Any) -> Any:
        return Quiz(2) if sum(slept) > 50 else away

    (episode,) = play([away], Talker(), starts(1), renew=renew, patience=60.0)
    assert (episode.success, slept) == (True, [0.0, 1.0, 3.0, 7.0, 15.0, 30.0])
    slept.clear()
    with pytest.raises(EnvResetError, match="nobody answers at 0"):
        play([away], Talker(), starts(1), renew=renew, patience=5.0)
    assert slept == [0.0, 1.0, 3.0, 7.0]


def test_an_environment_whose_reset_hangs_is_not_reset_again(monkeypatch: pytest.MonkeyPatch, gate: Event) -> None:
    """A thread is still inside it, so the next attempt waits for another one."""
    monkeypatch.setattr(loop.time, "sleep", lambda seconds: None)
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
    (trajectory,) = play([hung], Talker(), starts(1), executor=executor, renew=renew, patience=0.5)
    assert (len(trajectory.turns), began) == (4, [hung])
    answers += [ConnectionError("nobody there")] * 2
    with pytest.raises(EnvResetError, match=r"reset\(seed=10\) \(timeout\)"):
        play([hung], Talker(), starts(1), executor=executor, renew=renew, patience=0.5)
    assert began == [hung, hung]


def test_a_cut_reply_is_played_and_trained_and_may_cost() -> None:
    policy = Talker(tokens=2)
    free, dear = (play([Quiz(2)], policy, starts(1), cut_penalty=cut)[0] for cut in (0.0, -0.5))
    assert [turn.cut for turn in free.turns] == [True, True]
    assert free.turns[0].reply_ids == (5, 5)
    assert sum(free.action_mask) == 4
    assert (free.terminated, free.episode_return, dear.episode_return) == (True, 3.0, 2.0)
    assert [turn.info.get("cut_penalty") for turn in dear.turns] == [-0.5, -0.5]
    assert "cut_penalty" not in free.turns[0].info
    assert free.token_ids == dear.token_ids
