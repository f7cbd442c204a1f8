"""A small Qwen2.5-VL or Qwen3-VL and its tokenizer, built here so nothing has to be downloaded; functions of a seed."""

from typing import Any

import torch
from tokenizers import AddedToken
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)

from ragen_trl.policies.tiny_model import build_tiny_tokenizer

_VISION = {"vision_start": "<|vision_start|>", "vision_end": "<|vision_end|>", "image": "<|image_pad|>"}
_VIDEO = "<|video_pad|>"


def build_tiny_vision_tokenizer(vocab_size: int = 512) -> PreTrainedTokenizerFast:
    """The tokenizer of the embedded model (`build_tiny_tokenizer`), with control tokens for pictures."""
    tokenizer = build_tiny_tokenizer(vocab_size)
    tokenizer.add_tokens(
        [AddedToken(text, special=True, normalized=False) for text in (*_VISION.values(), _VIDEO)], special_tokens=True
    )
    return tokenizer


def build_tiny_vision_model(
    tokenizer: PreTrainedTokenizerFast, seed: int = 0, hidden_size: int = 64, num_layers: int = 2, family: str = "2.5"
) -> PreTrainedModel:
    """Build a randomly initialised vision model of about 0.2 M parameters, float32, in evaluation mode.

    ``seed`` fixes the initial weights; the global torch generator does not change. ``hidden_size`` is a multiple of 32,
    ``family`` "2.5" or "3".
    """
    kinds = {
        "2.5": (Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration),
        "3": (Qwen3VLConfig, Qwen3VLForConditionalGeneration),
    }
    config, kind = kinds[family]
    described = config(
        text_config=_text(tokenizer, hidden_size, num_layers),
        vision_config=_vision(hidden_size, num_layers, family),
        video_token_id=tokenizer.convert_tokens_to_ids(_VIDEO),
        tie_word_embeddings=True,
        **{f"{name}_token_id": tokenizer.convert_tokens_to_ids(text) for name, text in _VISION.items()},
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        model = kind(described)
    return model.eval()


def _text(tokenizer: PreTrainedTokenizerFast, hidden_size: int, num_layers: int) -> dict[str, Any]:
    heads = 4
    half = hidden_size // heads // 2
    third = half // 3  # of the rotary frequencies: height and width get one each, time the rest
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden_size,
        "intermediate_size": 3 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "head_dim": hidden_size // heads,
        "max_position_embeddings": 2048,
        "rope_parameters": {
            "rope_type": "default",
            "mrope_section": [half - 2 * third, third, third],
            "rope_theta": 10000.0,
        },
        "initializer_range": 0.05,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _vision(hidden_size: int, num_layers: int, family: str) -> dict[str, Any]:
    own: dict[str, Any] = {"window_size": 56, "fullatt_block_indexes": [num_layers - 1]}
    if family == "3":
        own = {"num_position_embeddings": 64, "deepstack_visual_indexes": [0]}
    return {
        "depth": num_layers,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_heads": 4,
        "out_hidden_size": hidden_size,
        "initializer_range": 0.05,
        "patch_size": 14,
        **own,
    }
