"""Rows in one batch: none sees another, groups read their prompt once, a long page costs the others nothing."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from transformers import PreTrainedModel

from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import _TOKENS_OF_A_PASS, TransformersPolicy, _passes
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.cached_models import CHAT, CONFIGS, LENGTHS, check_greedy, model_of, rollout, starts
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


@contextmanager
def passes_of(model: PreTrainedModel) -> Iterator[list[torch.Size]]:
    """Shapes (b, n) of the tokens of every forward pass."""
    shapes: list[torch.Size] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    yield shapes
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
    assert _TOKENS_OF_A_PASS == 512
    spans = _passes(widths)
    assert [len(span) for span in spans] == passes
    assert [row for span in spans for row in span] == list(range(len(widths)))


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
        forced[..., script[len(policy._rows[0].ids)]] = 0.0
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
