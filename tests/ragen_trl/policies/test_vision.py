"""A vision model samples with a kept KV cache what one full pass over the episode computes."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ragen_trl.policies import transformers as passes
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.trajectory import Picture
from tests.support.ragen_trl.vision import (
    TOKENIZER,
    full_pass,
    play_seeing,
    processor_of,
    sampled,
    vision_config,
    vision_model,
)


@pytest.mark.parametrize("family", ["2.5", "3"])
def test_an_episode_of_several_frames_equals_one_full_pass(tmp_path: Path, family: str) -> None:
    model = vision_model(family=family)
    episodes = play_seeing(model, tmp_path, [3, 3, 4], max_turns=3)
    assert [len(episode.pictures) for episode in episodes] == [3, 3, 3]
    assert episodes[0].pictures[0] == episodes[1].pictures[0] != episodes[2].pictures[0]
    for episode in episodes:
        torch.testing.assert_close(sampled(episode), full_pass(model, episode), rtol=0, atol=2e-5)


@pytest.mark.parametrize("family", ["2.5", "3"])
def test_episodes_whose_replies_end_sooner_than_others_equal_full_passes(tmp_path: Path, family: str) -> None:
    """A context whose rows have closed is padding in the passes of the others."""
    model = vision_model(family=family)
    model.generation_config.eos_token_id = list(range(3, len(TOKENIZER), 12))
    episodes = play_seeing(model, tmp_path, [3, 4, 3, 4, 5, 6, 3, 7], max_turns=3)
    assert len({len(turn.reply_ids) for episode in episodes for turn in episode.turns}) > 3
    for episode in episodes:
        torch.testing.assert_close(sampled(episode), full_pass(model, episode), rtol=0, atol=2e-5)


def test_pieces_of_passes_and_of_pictures_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of at most 7 tokens: every picture, of 4 tokens, is cut somewhere; so are those that rows share."""
    whole = play_seeing(vision_model(), tmp_path, [3, 3, 4], max_turns=2)
    monkeypatch.setattr(passes, "MOST_TOKENS", 7)
    pieces = play_seeing(vision_model(), tmp_path, [3, 3, 4], max_turns=2)
    for one, other in zip(whole, pieces, strict=True):
        assert one.token_ids == other.token_ids
        torch.testing.assert_close(sampled(one), sampled(other), rtol=0, atol=2e-5)


def test_a_row_does_not_depend_on_the_rows_beside_it(tmp_path: Path) -> None:
    together = play_seeing(vision_model(), tmp_path, [3, 4, 3], max_turns=2)
    alone = play_seeing(vision_model(), tmp_path, [3], max_turns=2)
    assert together[0].token_ids == alone[0].token_ids
    torch.testing.assert_close(sampled(together[0]), sampled(alone[0]), rtol=0, atol=2e-5)


def test_the_picture_counts(tmp_path: Path) -> None:
    """Greedy, from two rooms: the texts are equal, so that only the picture can make a difference."""
    model = vision_model()
    one, other = play_seeing(model, tmp_path, [3, 4], max_turns=1, temperature=0.0)
    assert one.turns[0].prompt_ids == other.turns[0].prompt_ids
    assert (sampled(one)[0] - sampled(other)[0]).abs() > 1e-4


def test_the_prompt_is_what_the_processor_would_write(tmp_path: Path) -> None:
    """Transformers' processor puts as many placeholders as the picture has parts, between two tokens."""
    args = vision_config(tmp_path)
    turns, processor = make_turns("ragen/FrozenLake-v0", args), processor_of(vision_model())
    chat = make_chat(TOKENIZER, turns, args, processor.text)
    picture = Picture(56, 84, bytes(56 * 84 * 3))
    written = "<|vision_start|>" + "<|image_pad|>" * 6 + "<|vision_end|>Look. <|im_\u200bend|>"
    rendered = TOKENIZER.apply_chat_template(
        [{"role": "user", "content": written}], add_generation_prompt=True, tokenize=False
    )
    expected = TOKENIZER(rendered + "<answer>", add_special_tokens=False)["input_ids"]
    assert chat.start("Look. <|im_\u200bend|>", pictures=[picture]) == expected
    text = chat.start("a <|image_pad|> of the environment", pictures=[picture])
    assert text.count(processor.image_id) == 6  # what an environment writes stays text


def test_placeholders_are_never_sampled(tmp_path: Path) -> None:
    model: Any = vision_model()
    with torch.no_grad():
        model.lm_head.weight[list(processor_of(model).never_sampled)] *= 30.0
    episodes = play_seeing(model, tmp_path, [3, 4, 5, 6], max_turns=1)
    drawn = {token for episode in episodes for turn in episode.turns for token in turn.reply_ids}
    assert drawn.isdisjoint(processor_of(model).never_sampled)
    for episode in episodes:
        torch.testing.assert_close(sampled(episode), full_pass(model, episode), rtol=1e-5, atol=5e-5)
