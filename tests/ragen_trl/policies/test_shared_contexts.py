"""Episodes with equal contexts: computed once, apart from where they differ on, and as if each were alone."""

import random

import pytest
import torch
from transformers import PreTrainedModel

from ragen_trl.policies import transformers as passes
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
    contexts = shared.assign_contexts(rows)
    for context in contexts:
        context.mark_read()
    number = {id(row): number for number, row in shared.rows.items()}
    return sorted(sorted(number[id(row)] for row in context.rows) for context in contexts)


class Never:
    """No token ends a reply."""

    def reached(self, ids: object) -> bool:
        return False


def draw(shared: SharedContexts, tokens: dict[int, int]) -> list[list[int]]:
    """Rows sample these tokens and go on; which rows each context has."""
    for number, token in tokens.items():
        shared.rows[number].append(token, 0.0, Never())  # type: ignore[arg-type]
    contexts = shared.branched([context for context in shared.contexts if context.rows])
    for context in contexts:
        context.mark_read()
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


def whole_pass(model: PreTrainedModel, ids: list[int], count: int) -> list[float]:
    """Log-probabilities of the last tokens, so many of them, by one pass over all."""
    with torch.no_grad():
        logprobs = model(torch.tensor([ids])).logits[0].log_softmax(-1)
    return [logprobs[place - 1, ids[place]].item() for place in range(len(ids) - count, len(ids))]


@pytest.mark.parametrize("seed", range(12))
def test_whatever_rows_do_they_are_sampled_from_their_own_tokens(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows join, wait, leave, have a context built again or room for a token, in passes of any size."""
    chance = random.Random(seed)
    model = model_of(chance.choice(["qwen2", "llama", "gpt2"]))
    policy = TransformersPolicy(model, CHAT, Sampling(chance.choice([1, 2, 5, 9]), top_k=chance.choice([1, 2, 3])))
    monkeypatch.setattr(policy, "_pass_tokens", chance.choice([0, 1, 3, 32, 512]))
    monkeypatch.setattr(passes, "MOST_TOKENS", chance.choice([3, 8, 4096]))
    count, begin = chance.randint(2, 10), [chance.randrange(3, 60) for _ in range(chance.choice([1, 6, 20]))]
    policy.begin([chance.randint(0, 3) for _ in range(count)])
    contexts: dict[int, list[int]] = {}
    playing = set(range(count))
    for _ in range(5):
        requests = []
        for row in (row for row in chance.sample(sorted(playing), len(playing)) if chance.random() < 0.75):
            again = tuple(begin[: chance.randint(1, len(begin))]) if chance.random() < 0.2 else None
            new = [chance.choice([1, 2]) for _ in range(chance.choice([1, 1, 2, 4]))]
            new = new if row in contexts else begin + new
            contexts[row] = [*(contexts.get(row, []) if again is None else again), *new]
            room = chance.choice([None, None, 1, 7])
            requests.append(Request(row, "", tuple(new), Quiz(1), room, again))
        for request, reply in zip(requests, policy.reply(requests), strict=True):
            ids = contexts[request.row]
            ids += reply.ids
            assert reply.logprobs == pytest.approx(whole_pass(model, ids, len(reply.ids)), abs=1e-4)
        gone = [row for row in sorted(playing) if chance.random() < 0.15]
        policy.end(gone)
        playing -= set(gone)
