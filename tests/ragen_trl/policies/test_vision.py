"""A vision model samples with a kept KV cache what one full pass computes, and what the trainer computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2VLImageProcessorPil,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from ragen_trl import StarPOConfig, StarPOSConfig, StarPOTrainer
from ragen_trl.policies import transformers as passes
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.policies.vision import PictureProcessor, VisionPolicy, picture_processor
from ragen_trl.rollout.environments import EnvPool, EnvSpec, make_chat, make_turns
from ragen_trl.rollout.interfaces import Start
from ragen_trl.trajectory import Picture, Trajectory
from tests.support.ragen_trl.trainers import SMALL, AnyReply, LastRollout, Lottery, any_reply, limits_of, logged

# A vision model of 0.2 M parameters, environments that it sees, and what a full pass over an episode computes

_VISION = {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>", "image": "<|image_pad|>"}
_VIDEO = "<|video_pad|>"


def _tokenizer() -> PreTrainedTokenizerFast:
    """The tokenizer of the embedded model, with control tokens for pictures."""
    tokenizer = build_tiny_tokenizer()
    tokenizer.add_tokens(
        [AddedToken(text, special=True, normalized=False) for text in (*_VISION.values(), _VIDEO)], special_tokens=True
    )
    return tokenizer


TOKENIZER = _tokenizer()
SOKOBAN = "ragen/Sokoban-v0"
SEEING: dict[str, Any] = {**SMALL, "observation": "image", "image_size": 56, "max_completion_length": 400}


def vision_model(family: str = "2.5") -> PreTrainedModel:
    """A randomly initialised Qwen2.5-VL or Qwen3-VL of two layers of width 64; the global generator does not change."""
    text = {
        "vocab_size": len(TOKENIZER),
        "hidden_size": 64,
        "intermediate_size": 192,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 16,
        "max_position_embeddings": 2048,
        # Of the rotary frequencies height and width get a third each, time the rest.
        "rope_parameters": {"rope_type": "default", "mrope_section": [4, 2, 2], "rope_theta": 10000.0},
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": TOKENIZER.eos_token_id,
        "pad_token_id": TOKENIZER.pad_token_id,
        "initializer_range": 0.05,
    }
    seeing = {"depth": 2, "hidden_size": 32, "intermediate_size": 64, "num_heads": 4, "out_hidden_size": 64}
    seeing |= {"patch_size": 14, "initializer_range": 0.05}
    config: Any = Qwen2_5_VLConfig if family == "2.5" else Qwen3VLConfig
    kind: Any = Qwen2_5_VLForConditionalGeneration if family == "2.5" else Qwen3VLForConditionalGeneration
    own = {"window_size": 56, "fullatt_block_indexes": [1]}
    own = own if family == "2.5" else {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    described = config(
        text_config=text,
        vision_config={**seeing, **own},
        video_token_id=TOKENIZER.convert_tokens_to_ids(_VIDEO),
        tie_word_embeddings=True,
        **{f"{name}_token_id": TOKENIZER.convert_tokens_to_ids(text) for name, text in _VISION.items()},
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        model: PreTrainedModel = kind(described)
    return model.eval()


def vision_config(folder: Path, config: type[StarPOConfig] = StarPOConfig, **changes: Any) -> StarPOConfig:
    return config(output_dir=str(folder), **{**SEEING, **changes})


def vision_trainer(
    folder: Path, env: Any = SOKOBAN, config: type[StarPOConfig] = StarPOConfig, model: Any = None, **changes: Any
) -> StarPOTrainer:
    """A trainer of the small vision model; ``changes`` are options."""
    args = vision_config(folder, config, **{**limits_of(env), **changes})
    return StarPOTrainer(model or vision_model(), env, args, processing_class=TOKENIZER)


def processor_of(model: PreTrainedModel) -> PictureProcessor:
    made, _ = picture_processor(model, vision_config(Path("unused")), TOKENIZER)
    assert made is not None
    return made


def play_seeing(
    model: PreTrainedModel, folder: Path, seeds: list[int], temperature: float = 1.0, **changes: Any
) -> list[Trajectory]:
    """Episodes of the model, sampled with a kept KV cache; the n-th has sampling seed n."""
    args = vision_config(folder, **changes)
    pool, processor = EnvPool(args), processor_of(model)
    envs = pool.take([EnvSpec(SOKOBAN)] * len(seeds))
    chat = make_chat(TOKENIZER, envs[0], args, processor.text)
    policy = VisionPolicy(model, chat, Sampling(args.max_reply_length, temperature), processor)
    return pool.play(envs, policy, [Start(seed, seed, place) for place, seed in enumerate(seeds)])


def full_pass(model: PreTrainedModel, trajectory: Trajectory) -> torch.Tensor:
    """(T,) log-probabilities of an episode's sampled tokens, in one pass with the positions of Transformers."""
    ids = torch.tensor([trajectory.token_ids])
    ids, seen = processor_of(model).inputs(ids, torch.ones_like(ids), [trajectory.pictures])
    seen.pop("num_images", None)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), **seen).logits
    scores = logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None]).squeeze(-1)
    return scores[torch.tensor(trajectory.action_mask[1:]).bool()]


def sampled(trajectory: Trajectory) -> torch.Tensor:
    """(T,) the log-probabilities that the sampler reported."""
    return torch.tensor([value for turn in trajectory.turns for value in turn.logprobs])


class Frames(Lottery):
    """A lottery with a picture of noise, another one in every state; some episodes are shorter than others."""

    def __init__(self, draws: int) -> None:
        super().__init__(draws=draws)
        self.render_mode = "rgb_array"

    def _start(self, options: Any) -> str:
        self._noise = int(self.np_random.integers(1_000_000))
        return super()._start(options)

    def _picture(self) -> Any:
        return np.random.default_rng([self._noise, self.drawn]).integers(0, 256, (56, 56, 3), np.uint8)


def frames(draws: int = 3) -> AnyReply:
    """Episodes of up to so many frames, in which every reply is an action."""
    return any_reply(Frames(draws), draws, observation="image", image_size=56)


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


# Training on pictures: the trainer computes what the sampler did, whatever happens to the rows in between


@pytest.mark.parametrize("family", ["2.5", "3"])
def test_the_trainer_scores_what_the_sampler_sampled(tmp_path: Path, family: str) -> None:
    """With StarPO-S, whose filter keeps half of the groups, over two micro-batches. The self-check stops otherwise."""
    changes = {"filter_ratio": 0.5, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "max_steps": 1}
    model = vision_model(family=family)
    before = model.model.visual.patch_embed.proj.weight.detach().clone()
    trainer = vision_trainer(tmp_path, frames, StarPOSConfig, model, learning_rate=1e-2, **changes)
    last = LastRollout(trainer)
    trainer.train()
    assert {len(one.pictures) for one in last.played} == {1, 2, 3}
    assert logged(trainer, "filter/trajectories_used") == [4]
    assert logged(trainer, "sampling/ratio_deviation_max")[0] < 1e-4
    assert (model.model.visual.patch_embed.proj.weight - before).abs().max() > 1e-3


def test_a_saved_model_has_its_image_processor(tmp_path: Path) -> None:
    trainer = vision_trainer(tmp_path, frames, max_reply_length=1)
    trainer.save_model(str(tmp_path / "saved"))
    assert Qwen2VLImageProcessorPil.from_pretrained(tmp_path / "saved").patch_size == 14
    again = vision_trainer(tmp_path / "again", frames, model=str(tmp_path / "saved"), max_steps=1, max_reply_length=1)
    again.train()
    assert logged(again, "sampling/ratio_deviation_max")[0] < 1e-4


def test_filler_rows_show_the_pictures_of_their_prompts() -> None:
    processor = processor_of(vision_model())
    image, pad = processor.image_id, processor.pad_id
    one, other = Picture(56, 28, bytes(56 * 28 * 3)), Picture(28, 28, bytes([255] * 28 * 28 * 3))
    ids = torch.tensor([[9, image, image, 5, image], [pad, image, image, 5, image]])
    attention = torch.tensor([[1, 1, 1, 1, 1], [0, 1, 1, 1, 0]])
    cleared, seen = processor.inputs(ids, attention, [(one, other), (one, other)])
    assert cleared.tolist() == [[9, image, image, 5, image], [pad, image, image, 5, pad]]
    assert seen["image_grid_thw"].tolist() == [[1, 4, 2], [1, 2, 2], [1, 4, 2]] and seen["num_images"] == [2, 1]
    assert seen["mm_token_type_ids"].tolist() == [[0, 1, 1, 0, 1], [0, 1, 1, 0, 0]]
    assert torch.equal(seen["pixel_values"][:8], seen["pixel_values"][12:])
