"""Rollout: who is asked when, what is recorded, how episodes end, and what the members of a group share."""

from collections.abc import Sequence

import pytest
from gymnasium import make

import ragen_envs
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.contexts import ContextRule
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.chat_families import FAMILIES
from tests.support.ragen_trl.fake_envs import Quiz, quizzes

CHAT = Chat(FAMILIES["chatml"].tokenizer())


class Spy(Policy):
    """Answers with its row and keeps a diary of what a rollout asks of a policy."""

    def __init__(self, chat: Chat | None = None, max_context: int | None = None, reply_tokens: int = 3) -> None:
        self.chat = chat
        self.max_context = max_context
        self.reply_tokens = reply_tokens
        self.seeds: list[int] = []
        self.asked: list[list[int]] = []
        self.ended: list[list[int]] = []
        self.rooms: list[int | None] = []

    def begin(self, seeds: Sequence[int]) -> None:
        self.seeds = list(seeds)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        self.asked.append([request.row for request in requests])
        self.rooms += [request.room for request in requests]
        return [self._reply(request) for request in requests]

    def _reply(self, request: Request) -> Reply:
        length = self.reply_tokens if request.room is None else min(self.reply_tokens, request.room)
        return Reply(f"row {request.row}", (5,) * length if self.chat else (), (-1.0,) * length if self.chat else ())

    def end(self, rows: Sequence[int]) -> None:
        self.ended.append(list(rows))


def starts(count: int) -> list[Start]:
    return [Start(seed=10 + row, outcome_seed=20 + row, sampling_seed=30 + row) for row in range(count)]


def test_rows_of_unequal_length_leave_when_they_are_done() -> None:
    spy = Spy()
    trajectories = play(quizzes((2, 1, 3, 1)), spy, starts(4))
    assert spy.asked == [[0, 1, 2, 3], [0, 2], [2]]
    assert spy.ended == [[1, 3], [0], [2]]
    assert [len(trajectory.turns) for trajectory in trajectories] == [2, 1, 3, 1]
    assert [trajectory.turns[0].reply for trajectory in trajectories] == ["row 0", "row 1", "row 2", "row 3"]


def test_rows_that_wait_begin_as_others_finish() -> None:
    envs, spy = quizzes((2, 1, 3, 1, 2)), Spy()
    trajectories = play(envs, spy, starts(5), batch_size=2)
    assert spy.seeds == [30, 31, 32, 33, 34]
    assert spy.asked == [[0, 1], [0, 2], [2, 3], [2, 4], [4]]
    assert spy.ended == [[1], [0], [3], [2], [4]]
    assert [len(trajectory.turns) for trajectory in trajectories] == [2, 1, 3, 1, 2]
    assert [trajectory.seed for trajectory in trajectories] == [10, 11, 12, 13, 14]
    assert [trajectory.turns[0].reply for trajectory in trajectories] == [f"row {row}" for row in range(5)]


def test_an_environment_is_reset_when_its_turn_has_come() -> None:
    """One that a server holds would otherwise idle until a place is free."""
    envs = quizzes((1, 1, 1))
    begun: list[int] = []

    class Watching(Spy):
        def reply(self, requests: Sequence[Request]) -> list[Reply]:
            begun.append(sum(len(env.resets) for env in envs))
            return super().reply(requests)

    play(envs, Watching(), starts(3), batch_size=1)
    assert begun == [1, 2, 3]


def test_seeds_reach_the_environment_and_the_dice_and_are_recorded() -> None:
    envs, spy = [Quiz(1), Quiz(1)], Spy()
    trajectories = play(envs, spy, [Start(1, outcome_seed=2, sampling_seed=3), Start(4, sampling_seed=5)])
    assert [env.resets for env in envs] == [[(1, {"outcome_seed": 2})], [(4, None)]]
    assert spy.seeds == [3, 5]
    assert [(trajectory.seed, trajectory.outcome_seed) for trajectory in trajectories] == [(1, 2), (4, None)]


def test_everything_that_happened_is_recorded() -> None:
    (trajectory,) = play([Quiz(2, padding=1)], Spy(), starts(1))
    first, second = trajectory.turns
    assert (first.observation, second.observation) == ("0x", "1xx")
    assert (first.reward, second.reward) == (1.0, 2.0)
    assert (first.info["asked"], second.info["asked"]) == (1, 2)
    assert trajectory.episode_return == 3.0
    assert trajectory.success


@pytest.mark.parametrize("truncates", [True, False])
def test_an_end_keeps_gymnasiums_meaning(truncates: bool) -> None:
    (trajectory,) = play([Quiz(2, truncates)], Spy(), starts(1))
    assert (trajectory.terminated, trajectory.truncated) == (not truncates, truncates)
    assert trajectory.limit == ("turns" if truncates else "")


def test_tokens_are_appended_turn_by_turn() -> None:
    (trajectory,) = play([Quiz(2, padding=1)], Spy(CHAT), starts(1))
    first, second = trajectory.turns
    assert first.prompt_ids == tuple(CHAT.start("0x"))
    assert second.prompt_ids == tuple(CHAT.extend(5, "1xx"))
    assert trajectory.token_ids == (*first.prompt_ids, 5, 5, 5, *second.prompt_ids, 5, 5, 5)
    assert first.logprobs == (-1.0, -1.0, -1.0)


def test_the_room_shrinks_to_what_the_tighter_budget_leaves() -> None:
    first, then = len(CHAT.start("0x")), len(CHAT.extend(5, "1xx"))
    spy = Spy(CHAT, max_context=first + 3 + then + 2)
    (trajectory,) = play([Quiz(2, padding=1)], spy, starts(1), max_length=100)
    assert spy.rooms == [3 + then + 2, 2]
    assert len(trajectory.turns[1].reply_ids) == 2  # a reply that would run over is cut
    spy = Spy(CHAT, max_context=1000)
    play([Quiz(2, padding=1)], spy, starts(1), max_length=100)
    assert spy.rooms == [100, 100 - 3 - then]  # counted after the first prompt


def test_a_truncated_episode_knows_what_would_have_been_shown_next() -> None:
    """A critic reads it to say what the rest was worth."""
    (cut,) = play([Quiz(2, truncates=True, padding=1)], Spy(CHAT), starts(1))
    assert cut.next_prompt_ids == tuple(CHAT.extend(5, "2xxx"))  # the question after the last answer
    (over,) = play([Quiz(2, padding=1)], Spy(CHAT), starts(1))
    assert over.next_prompt_ids == ()
    assert cut.token_ids == over.token_ids


def test_what_would_have_been_shown_next_closes_a_turn_that_the_policy_left_open() -> None:
    """A reply that ended by itself has its end-of-turn token already, one that was cut gets it here."""

    class Closing(Spy):
        def _reply(self, request: Request) -> Reply:
            end = CHAT.end_of_turn_id
            assert end is not None
            return Reply("done", (5, end), (-1.0, -1.0))

    (left_open,) = play([Quiz(1, truncates=True)], Spy(CHAT), starts(1))
    (closed,) = play([Quiz(1, truncates=True)], Closing(CHAT), starts(1))
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


def group(env_id: str, outcomes: Sequence[int], reply: str, **kwargs: float) -> list[Trajectory]:
    """One group: the start state of seed 3, an outcome seed for every member."""
    envs = [ragen_envs.AgentTurns(make(env_id, disable_env_checker=True, **kwargs), think=False) for _ in outcomes]
    policy = ScriptedPolicy(lambda env, random: reply)
    return play(envs, policy, [Start(3, outcome) for outcome in outcomes])


def test_group_members_share_the_start_but_not_the_outcomes_of_a_bandit() -> None:
    """Shared outcomes would make normalised advantages push away from the better arm (reference of RAGEN, 0.3)."""
    members = group("ragen/Bandit-v0", range(64), "<answer>Dragon</answer>")
    assert len({member.turns[0].observation for member in members}) == 1
    paid = [member.episode_return for member in members]
    assert set(paid) == {0.0, 1.0}
    assert 16 - 14 <= sum(paid) <= 16 + 14  # 64 draws of 1/4: 4 sigma are 13.9


def test_group_members_share_the_lake_but_not_the_slips() -> None:
    members = group("ragen/FrozenLake-v0", range(16), "<answer>Left || Up || Right || Down</answer>")
    assert len({member.turns[0].observation for member in members}) == 1
    assert len({tuple(turn.observation for turn in member.turns) for member in members}) > 4


def test_the_same_outcome_seed_gives_the_same_episode() -> None:
    one, two = group("ragen/FrozenLake-v0", [5, 5], "<answer>Left || Up || Right || Down</answer>")
    assert one == two


def test_a_window_gives_a_turn_the_context_that_it_can_see_and_the_room_that_this_leaves() -> None:
    """Contexts of two turns: from the third on they are rebuilt, and no longer than they are."""

    class Reader(Spy):
        def reply(self, requests: Sequence[Request]) -> list[Reply]:
            self.read = [*getattr(self, "read", []), *requests]
            return super().reply(requests)

    turns = ragen_envs.AgentTurns(ragen_envs.Bandit(), max_turns=4, max_actions=4, max_actions_per_turn=1, think=False)
    turns.step = lambda reply: ("next", 0.0, len(reader.read) == 4, False, {})  # type: ignore[assignment,method-assign]
    reader = Reader(CHAT, max_context=4000)
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
