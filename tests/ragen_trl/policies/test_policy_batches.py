"""Rows in one batch: none sees another, groups read their prompt once, a long page costs the others nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from transformers import PreTrainedModel

from ragen_trl.policies import transformers as transformers_policy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy, _passes, most_rows, most_tokens
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.cached_models import (
    CHAT,
    CONFIGS,
    LENGTHS,
    check_greedy,
    model_of,
    passes_of,
    rollout,
    starts,
)
from tests.support.ragen_trl.chat_families import FAMILIES
from tests.support.ragen_trl.fake_envs import Quiz, quizzes

each_model = pytest.mark.parametrize("architecture", CONFIGS)


@each_model
def test_a_reply_does_not_depend_on_the_other_rows(architecture: str) -> None:
    model = model_of(architecture)
    together = rollout(model, Sampling(max_tokens=7))
    for row, env in enumerate(quizzes(LENGTHS)):
        policy = TransformersPolicy(model, CHAT, Sampling(max_tokens=7))
        alone = play([env], policy, [starts(len(LENGTHS))[row]])[0]
        assert alone.token_ids == together[row].token_ids


def test_rows_with_one_state_and_different_dice_differ_and_the_same_dice_agree() -> None:
    policy = TransformersPolicy(model_of("qwen2"), CHAT, Sampling(max_tokens=20))
    seeds = [Start(0, sampling_seed=seed) for seed in (1, 2, 1)]
    first, second, third = play([Quiz(1), Quiz(1), Quiz(1)], policy, seeds)
    assert first.token_ids == third.token_ids
    assert first.token_ids != second.token_ids


@each_model
def test_replies_are_the_same_however_many_rows_play_at_once(architecture: str) -> None:
    """Rows join a cache in which others have long contexts, and one that all have left."""
    model = model_of(architecture)
    lengths = (1, 3, 2, 4, 3, 1, 1, 2)
    sampling = Sampling(max_tokens=7)
    together = play(quizzes(lengths), TransformersPolicy(model, CHAT, sampling), starts(len(lengths)))
    for size in (1, 2, 3, 7):
        policy = TransformersPolicy(model, CHAT, sampling)
        with passes_of(model) as shapes:
            fewer = play(quizzes(lengths), policy, starts(len(lengths)), batch_size=size)
        assert max(shape[0] for shape in shapes) == size
        for one, other in zip(together, fewer, strict=True):
            assert one.token_ids == other.token_ids
            for turn, again in zip(one.turns, other.turns, strict=True):
                assert turn.logprobs == pytest.approx(again.logprobs, abs=1e-4)


@contextmanager
def masks_of(model: PreTrainedModel) -> Iterator[list[int]]:
    """How many numbers the attention mask of every forward pass has."""
    numbers: list[int] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: numbers.append(kwargs["attention_mask"].numel()), with_kwargs=True
    )
    yield numbers
    hook.remove()


def test_a_group_reads_its_first_prompt_once() -> None:
    model = model_of("qwen2")
    envs = [Quiz(2, padding=3), *quizzes((2, 2)), Quiz(2, padding=3), Quiz(2, padding=3)]  # 1st, 4th, 5th begin alike
    sampling = Sampling(max_tokens=7)
    with passes_of(model) as shapes:
        together = play(envs, TransformersPolicy(model, CHAT, sampling), starts(5))
    assert shapes[0][0] == 3
    assert len({row.turns[0].reply_ids for row in (together[0], together[3], together[4])}) == 3  # own sampling seeds
    for row, env in enumerate(envs):
        alone = play([env], TransformersPolicy(model, CHAT, sampling), [starts(5)[row]])[0]
        assert alone.token_ids == together[row].token_ids
        assert alone.turns[-1].logprobs == pytest.approx(together[row].turns[-1].logprobs, abs=1e-4)


def test_a_long_page_does_not_make_short_rows_wide() -> None:
    model = model_of("qwen2")
    envs = [Quiz(2, padding=140 if row == 2 else row) for row in range(6)]
    with passes_of(model) as shapes:
        trajectories = play(envs, TransformersPolicy(model, CHAT, Sampling(5, temperature=0)), starts(6))
    check_greedy(model, trajectories, 5)
    prompts = [shape for shape in shapes if shape[1] > 1]
    assert [shape[0] for shape in prompts] == [1, 5, 1, 5]  # in both turns the long row is read apart
    computed = sum(shape.numel() for shape in prompts)
    needed = sum(len(turn.prompt_ids) for row in trajectories for turn in row.turns)
    assert needed <= computed < 1.1 * needed + 12  # the last token of every reply is read with the next prompt


@pytest.mark.parametrize(
    ("widths", "passes"),
    [
        ([5], [1]),
        ([700, 700, 700], [3]),
        ([1500, 30], [1, 1]),
        ([1500, 988], [1, 1]),  # 512 tokens of padding are as dear as a pass
        ([1500, 989], [2]),
        ([1500, 1400, 1400, 1400, 1400, 1400, 1400], [1, 6]),  # 100 of 6 rows
        ([1500, 1400, 1400, 1400, 1400, 1400], [6]),
        ([2000, 1000, 10, 9], [1, 1, 2]),
    ],
)
def test_rows_are_read_apart_where_padding_would_cost_more_than_a_pass(widths: list[int], passes: list[int]) -> None:
    spans = _passes(widths, 100_000, 1000, pass_tokens=512)
    assert [len(span) for span in spans] == passes
    assert [row for span in spans for row in span] == list(range(len(widths)))


@pytest.mark.parametrize(
    ("widths", "passes"),
    [
        ([700, 700, 700], [2, 1]),
        ([1400, 10, 10], [1, 2]),
        ([9000, 700, 700], [1, 2]),  # read in pieces
        ([500, 500, 500, 10], [3, 1]),
        ([1500] * 128, [1] * 128),
        ([100] * 30, [15, 15]),
        ([2] * 50, [20, 20, 10]),
    ],
)
def test_a_pass_takes_as_many_rows_as_its_bound_has_room_for(widths: list[int], passes: list[int]) -> None:
    assert [len(span) for span in _passes(widths, 1500, 20, 512)] == passes


def test_the_bound_is_on_tokens_on_the_mask_of_long_contexts_and_on_their_slots() -> None:
    assert most_tokens(300) == most_tokens(8192) == 4096
    assert most_tokens(32768) == 1024  # 32 Mi numbers, too
    assert most_rows(1024) == 128 and most_rows(8192) == 16
    assert most_tokens(2**40) == most_rows(2**40) == 1


@pytest.mark.parametrize(("tokens", "mask"), [(64, 2**30), (2**30, 64 * 200)])
def test_passes_are_bounded_and_replies_are_those_of_unbounded_ones(
    monkeypatch: pytest.MonkeyPatch, tokens: int, mask: int
) -> None:
    """Rows of many lengths and one much longer than the bound, over two turns."""
    model = model_of("qwen2")
    found, sizes, masks = [], [], []
    for bounds in ((2**30, 2**40), (tokens, mask)):
        monkeypatch.setattr(transformers_policy, "MOST_TOKENS", bounds[0])
        monkeypatch.setattr(transformers_policy, "MOST_OF_A_MASK", bounds[1])
        envs = [Quiz(2, padding=180 if row == 2 else 4 * row) for row in range(9)]
        with passes_of(model) as shapes, masks_of(model) as seen:
            found.append(play(envs, TransformersPolicy(model, CHAT, Sampling(5)), starts(9)))
        sizes.append(max(shape.numel() for shape in shapes))
        masks.append(max(seen))
    assert sizes[0] > 3 * 64 and masks[0] > 3 * 64 * 200
    assert sizes[1] <= tokens and masks[1] <= mask
    for whole, pieces in zip(*found, strict=True):
        assert whole.token_ids == pieces.token_ids
        for one, other in zip(whole.turns, pieces.turns, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


def test_a_reply_may_end_with_its_answer() -> None:
    """The closing tag is tokens of single characters here; end-of-turn comes from the chat and is not trained."""
    model, tag = model_of("qwen2"), CHAT.tokenizer.encode("</answer>", add_special_tokens=False)
    assert len(tag) == 9
    script = [*CHAT.tokenizer.encode("Up", add_special_tokens=False), *tag, 65, 65, 65, 65]
    never = Chat(FAMILIES["chatml"].tokenizer())
    never.stop_ids = lambda declared: frozenset({CHAT.end_of_turn_id})  # type: ignore[method-assign, arg-type]

    def speak(module: object, args: object, output: torch.Tensor) -> torch.Tensor:
        """Only the token whose turn it is can be drawn."""
        forced = torch.full_like(output, -torch.inf)
        forced[..., script[len(policy._shared.rows[0].ids)]] = 0.0
        return forced

    found = {}
    for stop_at_answer in (False, True):
        policy = TransformersPolicy(model, never, Sampling(15, stop_at_answer=stop_at_answer))
        hook = model.lm_head.register_forward_hook(speak)
        found[stop_at_answer] = play([Quiz(2)], policy, starts(1))[0]
        hook.remove()
    assert [(len(turn.reply_ids), turn.cut) for turn in found[True].turns] == [(11, False)] * 2
    assert [(len(turn.reply_ids), turn.cut) for turn in found[False].turns] == [(15, True)] * 2
    assert found[True].turns[0].reply == "Up</answer>"
    assert found[True].turns[1].prompt_ids[0] == CHAT.end_of_turn_id
    assert sum(found[True].action_mask) == 22
