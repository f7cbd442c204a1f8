"""Rows in one batch: none sees another, groups read their prompt once, a long page costs the others nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from transformers import PreTrainedModel

from ragen_trl.policies import transformers as transformers_policy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.cached_models import (
    CHAT,
    CONFIGS,
    LENGTHS,
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
