"""Small random models of several architectures, what they play, and what ``generate`` says to the same history."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from functools import cache

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    OPTConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)

from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.chat_families import FAMILIES
from tests.support.ragen_trl.fake_envs import quizzes

CHAT = Chat(FAMILIES["chatml"].tokenizer())
VOCABULARY = len(CHAT.tokenizer)
STOPS = list(range(3, VOCABULARY, 9))  # so many that replies end early, at different lengths
LENGTHS = (1, 3, 2, 4, 3)  # turns of each row: rows leave at the front, in the middle and at the back

SHAPE = {"vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
SHAPE |= {"num_attention_heads": 4, "max_position_embeddings": 512, "bos_token_id": None, "eos_token_id": STOPS}
CONFIGS: dict[str, PretrainedConfig] = {
    "qwen2": Qwen2Config(**SHAPE, num_key_value_heads=2, initializer_range=0.2),
    "llama": LlamaConfig(**SHAPE, num_key_value_heads=1, initializer_range=0.2),
    "gpt2": GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=512,
        n_embd=32,
        n_layer=2,
        n_head=4,
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=STOPS,
    ),
    "opt": OPTConfig(
        **SHAPE, ffn_dim=48, word_embed_proj_dim=32, pad_token_id=0, init_std=0.2, tie_word_embeddings=False
    ),
    "mistral": MistralConfig(**SHAPE, num_key_value_heads=4, sliding_window=512, initializer_range=0.2),
    "gemma3": Gemma3TextConfig(**SHAPE, num_key_value_heads=2, head_dim=8, sliding_window=512, initializer_range=0.2),
}


@cache
def model_of(architecture: str, attention: str = "sdpa") -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(deepcopy(CONFIGS[architecture]), attn_implementation=attention).eval()


def starts(count: int) -> list[Start]:
    return [Start(seed=row, sampling_seed=100 + row) for row in range(count)]


def rollout(model: PreTrainedModel, sampling: Sampling, max_length: int | None = None) -> list[Trajectory]:
    policy = TransformersPolicy(model, CHAT, sampling)
    return play(quizzes(LENGTHS), policy, starts(len(LENGTHS)), max_length)


@contextmanager
def passes_of(model: PreTrainedModel) -> Iterator[list[torch.Size]]:
    """Shapes (b, n) of the tokens of every forward pass."""
    shapes: list[torch.Size] = []
    hook = model.register_forward_pre_hook(
        lambda module, args, kwargs: shapes.append(kwargs["input_ids"].shape), with_kwargs=True
    )
    yield shapes
    hook.remove()


def generated(model: PreTrainedModel, history: list[int], tokens: int) -> list[int]:
    """What ``model.generate`` answers to a whole history at temperature 0."""
    context = torch.tensor([history])
    output = model.generate(
        context,
        attention_mask=torch.ones_like(context),
        do_sample=False,
        max_new_tokens=tokens,
        eos_token_id=sorted(CHAT.stop_ids(STOPS)),
        pad_token_id=0,
    )
    found: list[int] = output[0, len(history) :].tolist()
    return found


def check_greedy(model: PreTrainedModel, trajectories: list[Trajectory], tokens: int) -> set[int]:
    """Every reply is that of ``generate``; returns the lengths of the replies."""
    for trajectory in trajectories:
        history: list[int] = []
        for turn in trajectory.turns:
            history += turn.prompt_ids
            assert generated(model, history, tokens) == list(turn.reply_ids)
            history += turn.reply_ids
    return {len(turn.reply_ids) for trajectory in trajectories for turn in trajectory.turns}
