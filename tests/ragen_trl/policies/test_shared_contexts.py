"""Episodes with equal contexts: computed once, apart from where they differ on, and as if each were alone."""

import pytest
import torch

from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.shared_contexts import SharedContexts
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.interfaces import Request, Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.cached_models import CHAT, CONFIGS, model_of, passes_of
from tests.support.ragen_trl.fake_envs import Quiz


def ask(row: int, *new_ids: int, context: tuple[int, ...] | None = None) -> Request:
    return Request(row, "", new_ids, Quiz(1), context_ids=context)


def begun(shared: SharedContexts, requests: list[Request]) -> list[list[int]]:
    """Rows read what is asked of them; which rows each context has, by their numbers."""
    rows = [shared.rows[request.row] for request in requests]
    for row, request in zip(rows, requests, strict=True):
        row.begin_turn(request, max_tokens=9)
    contexts = shared.own(rows)
    for context in contexts:
        context.fed()
    number = {id(row): number for number, row in shared.rows.items()}
    return sorted(sorted(number[id(row)] for row in context.rows) for context in contexts)


class Never:
    """No token ends a reply."""

    def reached(self, ids: object) -> bool:
        return False


def draw(shared: SharedContexts, tokens: dict[int, int]) -> list[list[int]]:
    """Rows sample these tokens and go on; which rows each context has."""
    for number, token in tokens.items():
        shared.rows[number].take(token, 0.0, Never())  # type: ignore[arg-type]
    contexts = shared.branched([context for context in shared.contexts if context.rows])
    for context in contexts:
        context.fed()
    number = {id(row): number for number, row in shared.rows.items()}
    return sorted(sorted(number[id(row)] for row in context.rows) for context in contexts)


def test_rows_share_a_context_until_they_draw_different_tokens() -> None:
    shared = SharedContexts(range(4))
    assert begun(shared, [ask(row, 5, 6) for row in range(4)]) == [[0, 1, 2, 3]]
    assert draw(shared, {0: 7, 1: 7, 2: 8, 3: 7}) == [[0, 1, 3], [2]]
    assert draw(shared, {0: 1, 1: 2, 2: 1, 3: 1}) == [[0, 3], [1], [2]]
    assert [shared.rows[row].tokens for row in range(4)] == [(5, 6, 7, 1), (5, 6, 7, 2), (5, 6, 8, 1), (5, 6, 7, 1)]
    assert shared.cache.num_rows == len(shared.contexts) == 3


def test_rows_answered_alike_go_on_together_and_the_others_apart() -> None:
    shared = SharedContexts(range(3))
    begun(shared, [ask(row, 5) for row in range(3)])
    draw(shared, {0: 7, 1: 7, 2: 7})
    assert begun(shared, [ask(0, 1), ask(1, 2), ask(2, 1)]) == [[0, 2], [1]]
    assert [shared.rows[row].tokens for row in range(3)] == [(5, 7, 1), (5, 7, 2), (5, 7, 1)]


def test_a_row_that_waits_keeps_its_context_while_others_go_on_from_it() -> None:
    shared = SharedContexts(range(3))
    begun(shared, [ask(row, 5) for row in range(3)])
    draw(shared, {0: 7, 1: 7, 2: 7})
    assert begun(shared, [ask(1, 1), ask(2, 1)]) == [[1, 2]]
    assert shared.rows[0].tokens == (5, 7)
    assert begun(shared, [ask(0, 3)]) == [[0]]
    assert [shared.rows[row].tokens for row in range(3)] == [(5, 7, 3), (5, 7, 1), (5, 7, 1)]


def test_a_row_that_closes_first_has_its_part_of_the_context_and_branches_from_there() -> None:
    shared = SharedContexts(range(2))
    begun(shared, [ask(0, 5), ask(1, 5)])
    shared.rows[0].budget = 1
    assert draw(shared, {0: 7, 1: 7}) == [[1]]
    assert draw(shared, {1: 8}) == [[1]]
    assert shared.rows[0].tokens == (5, 7)
    assert shared.rows[1].tokens == (5, 7, 8)
    assert begun(shared, [ask(0, 2), ask(1, 2)]) == [[0], [1]]
    assert [shared.rows[row].tokens for row in (0, 1)] == [(5, 7, 2), (5, 7, 8, 2)]


def test_a_context_that_only_a_shorter_row_is_left_with_is_cut_to_it_and_not_copied() -> None:
    shared = SharedContexts(range(2))
    begun(shared, [ask(0, 5), ask(1, 5)])
    shared.rows[0].budget = 1
    draw(shared, {0: 7, 1: 7})
    draw(shared, {1: 8})
    shared.leave([1])
    (context,) = shared.contexts
    assert begun(shared, [ask(0, 2)]) == [[0]]
    assert shared.contexts == [context] and context.read == [5, 7, 2]


def test_a_context_that_is_built_again_begins_empty_and_is_shared_as_well() -> None:
    shared = SharedContexts(range(3))
    begun(shared, [ask(row, 5) for row in range(3)])
    draw(shared, {0: 7, 1: 8, 2: 9})
    assert begun(shared, [ask(0, 1, context=(3,)), ask(1, 1, context=(3,)), ask(2, 4)]) == [[0, 1], [2]]
    assert [shared.rows[row].tokens for row in range(3)] == [(3, 1), (3, 1), (5, 9, 4)]
    assert shared.cache.num_rows == 2


def test_contexts_leave_with_their_last_row() -> None:
    shared = SharedContexts(range(3))
    begun(shared, [ask(0, 5), ask(1, 5), ask(2, 6)])
    shared.leave([0])
    assert shared.cache.num_rows == 2
    shared.leave([1, 2])
    assert shared.cache.num_rows == 0 and shared.contexts == []


@pytest.mark.parametrize("architecture", CONFIGS)
def test_replies_and_probabilities_are_those_of_episodes_that_play_alone(architecture: str) -> None:
    """Few tokens to draw from, so that rows go on alike for a while, in this turn and the next."""
    model, sampling = model_of(architecture), Sampling(max_tokens=6, top_k=2)
    starts = [Start(0, sampling_seed=seed) for seed in range(24)]
    policy = TransformersPolicy(model, CHAT, sampling)
    with passes_of(model) as shapes:
        together = play([Quiz(3) for _ in starts], policy, starts)
    computed = sum(rows * tokens for rows, tokens in shapes)
    with passes_of(model) as shapes:
        alone = [play([Quiz(3)], TransformersPolicy(model, CHAT, sampling), [start])[0] for start in starts]
    assert len({episode.token_ids for episode in together}) > 12
    assert computed < 0.8 * sum(rows * tokens for rows, tokens in shapes)
    for one, other in zip(together, alone, strict=True):
        assert one.token_ids == other.token_ids
        for turn, again in zip(one.turns, other.turns, strict=True):
            assert turn.logprobs == pytest.approx(again.logprobs, abs=1e-4)


def test_a_greedy_group_is_one_episode_for_the_model() -> None:
    model = model_of("qwen2")
    policy = TransformersPolicy(model, CHAT, Sampling(max_tokens=8, temperature=0))
    with passes_of(model) as shapes, torch.no_grad():
        episodes = play([Quiz(3) for _ in range(8)], policy, [Start(0, sampling_seed=seed) for seed in range(8)])
    assert {shape[0] for shape in shapes} == {1}
    assert len({episode.token_ids for episode in episodes}) == 1
