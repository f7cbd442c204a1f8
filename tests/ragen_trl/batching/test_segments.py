"""Contexts of the last turns: what is read, which rows are trained and how they are weighed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl import StarPOConfig
from ragen_trl.algorithms.losses import aggregate, clipped_surrogate, kl_penalty
from ragen_trl.batching.batch import sampled_mask, select_rows
from ragen_trl.batching.loss_normalization import add_step_totals
from ragen_trl.batching.rollout_batch import TrajectorySummary
from ragen_trl.batching.segments import segment_batch, segment_loss, segment_rows
from ragen_trl.config.validation import check_segments_trainable
from ragen_trl.errors import OptionError
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.contexts import SlidingWindow
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.equivalence import every_turn_alone
from tests.support.ragen_trl.trainers import TOKENIZER, generation_batch, made_up, rollout_of


def rebuilt(*contexts: tuple[int, ...] | None) -> Trajectory:
    """Three turns of (2, 3), (1, 1) and (2, 1) tokens, numbered 1 to 10, with these contexts from the second on."""
    played = made_up((2, 3, 0.0), (1, 1, 0.5), (2, 1, 1.0))
    turns = [replace(turn, context_ids=ids) for turn, ids in zip(played.turns, (None, *contexts), strict=True)]
    return replace(played, turns=tuple(turns))


def test_a_trajectory_with_one_growing_context_is_its_only_segment() -> None:
    played = made_up((2, 3, 0.0), (1, 1, 0.5))
    assert played.segments == (played,)


def test_segments_by_hand() -> None:
    first, second = rebuilt((90, 91), None).segments
    assert first.token_ids == (1, 2, 3, 4, 5)
    assert second.token_ids == (90, 91, 6, 7, 8, 9, 10)
    assert second.action_mask == (0, 0, 0, 1, 0, 0, 1)
    assert [len(one.turns) for one in (first, second)] == [1, 2]
    first, second = rebuilt(None, ()).segments  # a context that begins with the message itself
    assert (first.token_ids, second.token_ids) == ((1, 2, 3, 4, 5, 6, 7), (8, 9, 10))


def test_the_first_turn_has_no_context_before_it() -> None:
    turn = Turn((1,), (2,), (), "?", "!", 0.0, context_ids=(7,))
    with pytest.raises(ValueError, match="put them into prompt_ids"):
        Trajectory((turn,), seed=0)


def turn_of(chat: Chat, last: int | None, observation: str, reply: str) -> Turn:
    """A turn as play records it."""
    prompt = chat.start(observation) if last is None else chat.extend(last, observation)
    return Turn(tuple(prompt), tuple(chat.encode_reply(reply)), (), observation, reply, 0.0)


def test_a_window_is_the_conversation_that_begins_with_its_first_turn() -> None:
    """Token for token what growing the context from the opening on would have given."""
    chat = Chat(TOKENIZER, reply_prefix="<answer>")
    replies = [f"<answer>{word}</answer>" for word in ("Up", "Down", "Left")]
    turns = [turn_of(chat, 5 if place else None, f"state {place}", reply) for place, reply in enumerate(replies)]
    openings = [f"rules\n\nstate {place}" for place in range(4)]
    found = SlidingWindow(3).rebuilt(chat, turns, openings, "state 3")
    assert found is not None
    context, prompt = found
    grown = list(chat.start("rules\n\nstate 1"))
    for reply, message in zip(replies[1:], ("state 2", "state 3"), strict=True):
        grown += chat.encode_reply(reply)
        before = len(grown)
        grown += chat.extend(grown[-1], message)
    assert (*context, *prompt) == tuple(grown)
    assert len(context) == before
    assert SlidingWindow(1).rebuilt(chat, turns, openings, "state 3") == ((), tuple(chat.start("rules\n\nstate 3")))


def test_replies_are_never_tokenised_again() -> None:
    """A sampled reply may have token ids that no tokenizer would choose."""
    chat = Chat(TOKENIZER)
    odd = replace(turn_of(chat, None, "?", "!"), reply_ids=(17, 17, 4, 9))
    found = SlidingWindow(2).rebuilt(chat, [odd, odd], ["?", "?", "??"], "??")
    assert found is not None and found[0][-4:] == (17, 17, 4, 9)


def test_rows_of_segments_by_hand() -> None:
    """Five sampled tokens in rows of 3 and 2, and a trajectory in one row."""
    whole = made_up((1, 2, 0.0))
    batch = segment_batch([rebuilt((90, 91), None), whole], pad_id=0)
    assert batch["prompt_ids"].tolist() == [[0, 1, 2], [90, 91, 6], [0, 0, 1]]
    assert batch["prompt_mask"].tolist() == [[0, 1, 1], [1, 1, 1], [0, 0, 1]]
    assert batch["completion_ids"].tolist() == [[3, 4, 5, 0], [7, 8, 9, 10], [2, 3, 0, 0]]
    mask = batch["completion_mask"] * batch["tool_mask"]
    assert mask.tolist() == [[1, 1, 1, 0], [1, 0, 0, 1], [1, 1, 0, 0]]
    assert batch["sampling_per_token_logps"][1].tolist() == pytest.approx([-0.07, 0, 0, -0.1])
    assert batch["trajectory_share"].tolist() == pytest.approx([0.6, 0.4, 1.0])


def test_a_segment_has_the_advantages_of_its_own_tokens() -> None:
    played = [rebuilt((90, 91), None), made_up((1, 2, 0.0))]
    whole = generation_batch(played)
    mask = whole["completion_mask"] * whole["tool_mask"]
    by_token = torch.arange(1.0, 1 + mask.numel()).reshape(mask.shape) * mask
    batch = segment_rows(played, by_token, mask, pad_id=0)
    used = (batch["completion_mask"] * batch["tool_mask"]).bool()
    assert batch["advantages"][used].tolist() == by_token[mask.bool()].tolist()
    assert not batch["advantages"][:3][~used[:3]].any()
    one_each = select_rows(segment_rows(played, torch.tensor([3.0, -1.0]), mask, pad_id=0), range(3), size=4)
    assert one_each["advantages"][:3].tolist() == [3.0, 3.0, -1.0]
    assert one_each["trajectory_share"].tolist() == pytest.approx([0.6, 0.4, 1.0, 0.0])
    assert one_each["completion_mask"][3].tolist() == [0, 0, 0, 0]


def test_a_process_without_trajectories_has_filler_alone() -> None:
    batch = select_rows(segment_rows([rebuilt((9,), None)], torch.zeros(1), torch.zeros(1, 4), pad_id=0), [], size=2)
    assert not batch["completion_mask"].any() and not batch["trajectory_share"].any()
    assert len(batch["prompt_ids"]) == len(batch["advantages"]) == 2


def test_the_process_with_most_rows_is_the_one_with_most_segments() -> None:
    """Two processes with 1 + 1 and 3 + 2 segments."""
    played = [made_up((1, 1, 0.0)), made_up((1, 1, 1.0)), rebuilt((7,), (8,)), rebuilt((7,), None)]
    for process in (0, 1):
        rollout = rollout_of(played, group_size=4, processes=2, process=process)
        assert [summary.segments for summary in rollout.summaries] == [1, 1, 3, 2]
        assert rollout.most_rows == 5
    assert TrajectorySummary.of(played[2], "env", 0).segments == 3


def test_a_windows_trajectories_are_counted_by_their_parts() -> None:
    """Rows of 0.6, 0.4 | 1, filler: two trajectories in four rows."""
    shares = [[0.6, 0.4], [1.0, 0.0]]
    parts: list[dict[str, Any]] = []
    for pair in shares:
        mask = torch.tensor([[1, 1] if share else [0, 0] for share in pair])
        columns = {"completion_mask": mask, "tool_mask": torch.ones_like(mask)}
        parts.append({**columns, "trajectory_share": torch.tensor(pair)})
    add_step_totals(parts, accumulation_steps=2, processes=1, total=lambda local: local)
    for part in parts:
        assert part["step_trajectories"].item() == pytest.approx(2)
        assert part["fill"].item() == pytest.approx(2)
        assert part["step_tokens"].item() == 6
    add_step_totals(parts[:1], accumulation_steps=1, processes=1, total=lambda local: local * 0.5)
    assert parts[0]["step_trajectories"].item() == pytest.approx(0.5)  # an update may hold a part of a trajectory


def test_the_loss_of_parts_is_the_mean_over_trajectories_of_their_token_means(tmp_path: Path) -> None:
    """Against `losses.aggregate` on rows that hold whole trajectories."""
    generator = torch.Generator().manual_seed(0)
    played = [every_turn_alone(made_up((1, 3, 0.0), (2, 5, 0.0), (1, 1, 0.0))), made_up((1, 2, 0.0))]
    whole = generation_batch(played)
    mask = whole["completion_mask"] * whole["tool_mask"]
    args = StarPOConfig(output_dir=str(tmp_path), beta=0.3, epsilon_high=0.4, bf16=False, use_cpu=True)
    columns = [torch.randn(mask.shape, generator=generator) * mask for _ in range(4)]
    logprobs, old, reference, advantages = columns
    per_token = clipped_surrogate(logprobs, old, advantages, args.epsilon, 0.4, args.delta)
    kl = kl_penalty(logprobs, reference, "k3") * (logprobs - old).exp()
    expected = aggregate(per_token + 0.3 * kl, mask, "seq_mean_token_mean")
    rows = [segment_rows(played, column, mask, pad_id=0) for column in columns]
    assert len(rows[0]["prompt_ids"]) == 4
    parts = [select_rows(row, range(4), 5)["advantages"] for row in rows]
    batch = select_rows(rows[-1], range(4), 5)
    add_step_totals([batch], 1, 1, lambda local: local)
    found, per_token = segment_loss(parts[0], parts[1], parts[2], batch, args)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    rows_mask = sampled_mask(batch)
    assert per_token["kl"][rows_mask].mean().item() == pytest.approx(kl[mask.bool()].mean().item(), rel=1e-5)
    without, _ = segment_loss(parts[0], parts[1], None, batch, args)
    assert without.item() != pytest.approx(expected.item(), rel=1e-3)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"loss_type": "sapo"}, "loss_type is 'sapo'"),
    ({"top_entropy_quantile": 0.5}, "top_entropy_quantile is 0.5"),
    ({"off_policy_mask_threshold": 0.5}, "off_policy_mask_threshold"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_what_needs_a_trajectory_in_one_row_is_refused(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    args = StarPOConfig(output_dir=str(tmp_path), bf16=False, use_cpu=True, **changes)
    with pytest.raises(OptionError, match=words):
        check_segments_trainable(args)
