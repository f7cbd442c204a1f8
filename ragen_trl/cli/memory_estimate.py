"""How much memory a training run takes, by arithmetic on the model's shape: no weights are loaded, nothing is run.

Counted per process are weights, gradients, AdamW's two moments, what autograd keeps, the tiles of TRL's head, keys and
values of a rollout; the larger of update and rollout counts. Rows share nothing and are as long as can be. Not counted:
the libraries (a CUDA context is about half a GiB), fragmentation, temporaries inside a kernel, quantised weights.
Relies on TRL loading float32 weights unless ``model_init_kwargs`` says otherwise, on tiles of at most 4096 tokens by
32768 words, and on ``sdpa`` attention repeating keys and values for every head.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn
from transformers import AutoModelForCausalLM, PretrainedConfig

from ragen_trl.cli.launch import Launch
from ragen_trl.errors import UserError
from ragen_trl.policies.sampling import LOGITS_AT_ONCE
from ragen_trl.policies.transformers import most_rows, most_tokens

Phase = Literal["always", "rollout", "update", "critic"]

HEAD_TOKENS, HEAD_WORDS = 4096, 32768  # TRL's tile
_TILES_OF_TORCH = 9  # without Triton the terms of a tile's gradient are tensors of its size; counted in an update
_SLOTS = 1.125  # the cache of a rollout grows by an eighth at a time
_FLOAT = 4
_BUCKET = 500_000_000  # numbers that DeepSpeed collects before it sums gradients, by default
_LIVE = 1_000_000_000  # numbers that ZeRO-3 keeps gathered at most, by default
_LAYERS_AHEAD = 2  # of FSDP2: the layer that computes, and the next one
# Per row and word while a token is drawn: log-probabilities in float32, the distribution in float64.
_BYTES_OF_A_DRAW = 4 + 8


class ModelShapeError(UserError, ValueError):
    """A model's configuration lacks a size that the estimate needs."""


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a decoder-only transformer.

    Attributes:
        layers: Decoder layers.
        hidden: Width of the residual stream.
        intermediate: Width of the gated feed-forward layer.
        query: Width of all queries: heads times head dimension.
        heads: Attention heads.
        keys: Width of all keys, and of all values.
        vocabulary: Words, padding included.
        parameters: All, shared ones once.
        linear_weights: Numbers in the linear layers of the decoder, biases and the head left out.
        linear_widths: Inputs plus outputs of these layers: the parameters that LoRA adds for each rank.
    """

    layers: int
    hidden: int
    intermediate: int
    query: int
    heads: int
    keys: int
    vocabulary: int
    parameters: int
    linear_weights: int
    linear_widths: int


@dataclass(frozen=True)
class MemoryUse:
    """How a model is trained, as far as it matters for memory.

    Attributes:
        rows: Trajectories of a micro-batch.
        tokens: Tokens of the longest trajectory or, where contexts are built again, row; first prompt included.
        rollout_rows: Trajectories that a process plays at the same time (``rollout_batch_size``); 0 if vLLM plays them.
        weight_bytes: Of a number of the weights: 4 as TRL loads them, 2 for bfloat16.
        mixed: Whether the model computes in bfloat16 (``bf16=True``); otherwise in the precision of its weights.
        lora_rank: 0 trains all weights.
        checkpointing: Whether activations are computed again in the backward pass.
        merged: Whether a rollout holds LoRA's layers a second time, with the adapter in them (``merge_lora``).
        reference: Whether a second set of weights is held, for the KL term, ``log_kl`` or as A*-PO's reference.
        critic: Whether a critic is trained beside the policy.
        ahead: Whether a copy of the policy plays the next rollout beside an update (``one_step_off_policy``).
        triton: Whether a GPU computes: the head's tiles go through TRL's kernel, and attention over a cache has copies
            of keys for every head.
        prompt: Tokens of the longest message of a turn; unset: a trajectory may be one message.
        launch: What is divided among how many processes; all other numbers are per process.
        all_rows: Tokens of all rows of a trajectory together, if it has several (`batching/segments.py`).
    """

    rows: int
    tokens: int
    rollout_rows: int
    weight_bytes: int = _FLOAT
    mixed: bool = False
    lora_rank: int = 0
    checkpointing: bool = True
    merged: bool = False
    reference: bool = False
    critic: bool = False
    ahead: bool = False
    triton: bool = False
    prompt: int | None = None
    launch: Launch = Launch()
    all_rows: int | None = None


@dataclass(frozen=True)
class MemoryLine:
    """One part of the memory: its bytes, the formula, and the phase of training."""

    name: str
    bytes: int
    formula: str
    phase: Phase


def shape_of(config: PretrainedConfig) -> ModelShape:
    """Read a model's sizes from its configuration, without memory; `ModelShapeError` if it lacks a usual name."""
    text = config.get_text_config()
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config)
        heads = text.num_attention_heads
        dimension = getattr(text, "head_dim", None) or text.hidden_size // heads
        keys = (getattr(text, "num_key_value_heads", None) or heads) * dimension
        head = model.get_output_embeddings()
        linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear) and layer is not head]
        return ModelShape(
            layers=text.num_hidden_layers,
            hidden=text.hidden_size,
            intermediate=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
            query=heads * dimension,
            heads=heads,
            keys=keys,
            vocabulary=text.vocab_size,
            parameters=model.num_parameters(),
            linear_weights=sum(layer.weight.numel() for layer in linear),
            linear_widths=sum(layer.in_features + layer.out_features for layer in linear),
        )
    except (ValueError, AttributeError) as error:
        raise ModelShapeError(
            f"no estimate for a model of type {config.model_type!r} ({error}); a decoder-only model with the usual "
            "names in its config.json (hidden_size, num_hidden_layers, num_attention_heads, vocab_size) has one"
        ) from error


def activation_bytes(shape: ModelShape, use: MemoryUse) -> int:
    """Bytes that autograd keeps of one token in one layer.

    With h the width, q all queries, f the feed-forward width and r the rank, in numbers of the computing precision c:
    the two norms read and write h, attention keeps queries, repeated keys and values and its output (4 q), the
    feed-forward layer its gate, its activation, its up-projection and their product (4 f). Mixed precision adds a cast
    copy of the input of every projection; frozen weights need the norms' results no more, but LoRA keeps r numbers a
    projection and a copy of the inputs. Every token has a row of the attention mask in the kernel's precision.
    """
    h, q, f, rank = shape.hidden, shape.query, shape.intermediate, use.lora_rank
    compute = _compute_bytes(use)
    if compute == _FLOAT:
        kept = (4 if rank else 6) * _FLOAT * h + 4 * _FLOAT * (q + f)
    elif rank:
        kept = 18 * h + 10 * q + 8 * f
    else:
        kept = (26 if _weight_bytes(use) == _FLOAT else 16) * h + 8 * q + 8 * f
    return kept + 7 * compute * rank + compute * use.tokens + _FLOAT * shape.heads + 2 * _FLOAT


def memory_lines(shape: ModelShape, use: MemoryUse) -> list[MemoryLine]:
    """All parts of the memory of one process, in the order of the phases.

    Example:
        >>> shape = ModelShape(1, 8, 16, 8, 2, 8, 32, 1000, 640, 112)
        >>> lines = memory_lines(shape, MemoryUse(rows=1, tokens=10, rollout_rows=2, checkpointing=False))
        >>> [(line.name, line.bytes) for line in lines][:2]
        [('weights', 4000), ('AdamW', 8000)]
        >>> lines[-1].formula
        'tile 10 tokens · 32 words · 4 bytes · 9 + gradients (32 + 10) · 8 · 4'
    """
    rollout = _of_rollout(shape, use)
    if use.ahead:  # beside every update
        rollout = [replace(line, phase="always") for line in rollout]
    return [*_held(shape, use), *rollout, *_of_update(shape, use)]


def peak_bytes(lines: list[MemoryLine]) -> int:
    """The largest of what is held in a rollout, in an update and in the critic's fit."""
    phases: tuple[Phase, ...] = ("rollout", "update", "critic")
    return max(phase_bytes(lines, phase) for phase in phases)


def phase_bytes(lines: list[MemoryLine], phase: Phase) -> int:
    """What is held in a phase: its own lines, and those that are always there."""
    return sum(line.bytes for line in lines if line.phase in ("always", phase))


def _held(shape: ModelShape, use: MemoryUse) -> list[MemoryLine]:
    weights, adapter, launch = shape.parameters, use.lora_rank * shape.linear_widths, use.launch
    trained, size = (adapter, "LoRA parameters") if adapter else (weights, "parameters")
    held, (parts, moments) = (_held_bytes(use), "bytes"), (launch.weight_parts, launch.moment_parts)
    lines = [_line("weights", "always", (weights, "parameters"), held, parts=parts)]
    if adapter:
        rank = ((use.lora_rank, "ranks"), (shape.linear_widths, "inputs and outputs"))
        kept = _held_bytes(use) if launch.is_deepspeed else _FLOAT
        lines += [_line("LoRA", "always", *rank, (kept, "bytes"), parts=parts)]
    if launch.is_deepspeed:
        lines += [_line("float32 copy for the optimizer", "always", (trained, size), (_FLOAT, "bytes"), parts=moments)]
    moment = (_FLOAT if adapter or launch.is_deepspeed else use.weight_bytes, "bytes")
    lines += [_line("AdamW", "always", (trained, size), (2, "moments"), moment, parts=moments)]
    if use.reference and not adapter:  # with LoRA it is the base model
        lines += [_line("reference", "always", (weights, "parameters"), held, parts=parts)]
    if use.ahead:
        copied = (_FLOAT if adapter else use.weight_bytes, "bytes")
        lines += [_line("copy for the next rollout", "always", (trained, "parameters"), copied)]
    if use.critic:
        many = ((trained, "parameters"), (3, "weights and moments"), (_critic_bytes(use), "bytes"))
        lines += [_line("critic", "always", *many, parts=_critic_parts(use))]
    return lines


def _of_rollout(shape: ModelShape, use: MemoryUse) -> list[MemoryLine]:
    """The cache, and the largest of what is there for a moment: a tensor that grows, a pass, or the draw of a token."""
    if not use.rollout_rows:
        return []
    compute = _compute_bytes(use)
    rows = (use.rollout_rows, "rows")
    numbers = ((shape.keys, "numbers"), (compute, "bytes"))
    cache = ((shape.layers, "layers"), (2, "keys and values"), *numbers, rows, (round(_SLOTS * use.tokens), "slots"))
    lines = [_line("keys and values", "rollout", *cache)]
    if use.launch.weight_parts > 1:
        whole = shape.parameters + use.lora_rank * shape.linear_widths
        lines.append(_line("whole weights", "rollout", (whole, "parameters"), (compute, "bytes")))
    if use.merged:
        lines.append(_line("merged weights", "rollout", (shape.linear_weights, "weights"), (use.weight_bytes, "bytes")))
    beside_training = use.ahead and use.lora_rank  # where autocast keeps no casts of frozen weights
    if use.mixed and _weight_bytes(use) == _FLOAT and not beside_training:
        weights = shape.linear_weights + shape.vocabulary * shape.hidden
        lines.append(_line("bfloat16 weights", "rollout", (weights, "weights"), (2, "bytes")))
    moments = [
        _line("growth of the keys of a layer", "rollout", *numbers, rows, (use.tokens, "slots")),
        _prompt_pass(shape, use),
        _draw(shape, use),
    ]
    return [*lines, max(moments, key=lambda line: line.bytes)]


def _draw(shape: ModelShape, use: MemoryUse) -> MemoryLine:
    """The logits, and what drawing needs for all rows, or on a CPU for those that are drawn at once."""
    rows, words = use.rollout_rows, shape.vocabulary
    at_once = rows if use.triton else min(rows, max(1, LOGITS_AT_ONCE // words))
    formula = f"{words:,} words · ({rows:,} rows · {_FLOAT} bytes + {at_once:,} rows · {_BYTES_OF_A_DRAW} bytes)"
    return MemoryLine("sampling", words * (rows * _FLOAT + at_once * _BYTES_OF_A_DRAW), formula, "rollout")


def _prompt_pass(shape: ModelShape, use: MemoryUse) -> MemoryLine:
    """What a pass that reads prompts holds at its widest, in attention or in the feed-forward layer."""
    compute, residual = _compute_bytes(use), 2 * _weight_bytes(use) * shape.hidden
    tokens = min(most_tokens(use.tokens), use.rollout_rows * (use.prompt or use.tokens))
    longest, rows = use.tokens, min(use.rollout_rows, most_rows(use.tokens))
    # In the feed-forward layer: its gate, its activation and their product. Of each slot the mask says who may see it.
    feed_forward = residual + 3 * compute * shape.intermediate + longest
    wide = MemoryLine("", tokens * feed_forward, f"{tokens:,} tokens · {feed_forward:,} bytes", "rollout")
    # In attention: queries, their rotation and the output, and what the mask adds to the scores. With fewer heads of
    # keys than of queries a GPU reads copies for every head, of all slots of its rows.
    attention = residual + 3 * compute * shape.query + (1 + compute) * longest
    copies = 2 * compute * shape.query if use.triton and shape.query > shape.keys else 0
    formula = f"{tokens:,} tokens · {attention:,} bytes + {rows:,} rows · {longest:,} slots · {copies:,} bytes"
    long = MemoryLine("", tokens * attention + rows * longest * copies, formula, "rollout")
    return replace(max(wide, long, key=lambda line: line.bytes), name="a pass that reads prompts")


def _of_update(shape: ModelShape, use: MemoryUse) -> list[MemoryLine]:
    adapter = use.lora_rank * shape.linear_widths
    trained = adapter or shape.parameters
    lines = [*_gradients(use, trained), *_gathered(shape, use)]
    activations = _activations(shape, use, "update")
    tokens = use.rows * (use.all_rows or use.tokens)
    # The tile is as wide as TRL makes it; on the CPU pages that nothing is written to take no memory.
    tile, words = min(tokens, HEAD_TOKENS), HEAD_WORDS if use.triton else min(shape.vocabulary, HEAD_WORDS)
    tiles = 1 if use.triton else _TILES_OF_TORCH
    compute = _compute_bytes(use) if use.triton else _FLOAT
    weights = 0 if adapter else shape.vocabulary
    head = MemoryLine(
        "language-model head",
        tile * words * compute * tiles + (weights + tokens) * shape.hidden * _FLOAT,
        f"tile {tile:,} tokens · {words:,} words · {compute} bytes · {tiles} + gradients ({weights:,} + {tokens:,}) · "
        f"{shape.hidden:,} · {_FLOAT}",
        "update",
    )
    critic: list[MemoryLine] = []
    if use.critic:
        size, parts = (_critic_bytes(use), "bytes"), _critic_parts(use)
        critic = [_line("gradients of the critic", "critic", (trained, "parameters"), size, parts=parts)]
        critic += [*_gathered_for_critic(shape, use), *_activations(shape, use, "critic")]
    moments = [activations.pop(), head]
    if use.checkpointing:  # the tiles are gone before a layer is computed again
        moments = [max(moments, key=lambda line: line.bytes)]
    return [*critic, *lines, *activations, *moments]


def _gradients(use: MemoryUse, trained: int) -> list[MemoryLine]:
    launch, of = use.launch, (trained, "parameters")
    size = (_held_bytes(use) if launch.is_deepspeed or not use.lora_rank else _FLOAT, "bytes")
    lines = [_line("gradients", "update", of, size, parts=launch.gradient_parts)]
    if launch.is_deepspeed:
        lines += [_line("float32 gradients of a step", "update", of, (_FLOAT, "bytes"), parts=launch.moment_parts)]
        lines += [_line("bucket of gradients", "update", (min(trained, _BUCKET), "numbers"), size)]
    elif launch.engine == "DDP" and launch.processes > 1:
        lines += [_line("buckets of gradients", "update", of, size)]
    return lines


def _gathered(shape: ModelShape, use: MemoryUse) -> list[MemoryLine]:
    """Weights that an engine gathers for the layers that compute, and gives back after them."""
    compute = (_compute_bytes(use), "bytes")
    if use.launch.weight_parts == 1:
        return []
    if use.launch.engine == "ZeRO-3":
        return [_line("gathered weights", "update", (min(shape.parameters, _LIVE), "parameters"), compute)]
    return [_line("gathered weights", "update", _by_layer(shape), compute)]


def _gathered_for_critic(shape: ModelShape, use: MemoryUse) -> list[MemoryLine]:
    """The same while the critic learns: ZeRO-3 gathers an adapter's base whole; FSDP2 divides a model of its own."""
    if use.launch.engine == "ZeRO-3" and use.lora_rank:
        return [_line("gathered weights", "critic", (shape.parameters, "parameters"), (_compute_bytes(use), "bytes"))]
    if use.lora_rank or _critic_parts(use) == 1:
        return [replace(line, phase="critic") for line in _gathered(shape, use)]
    return [_line("gathered weights of the critic", "critic", _by_layer(shape), (_critic_bytes(use), "bytes"))]


def _by_layer(shape: ModelShape) -> tuple[int, str]:
    """What FSDP2 has gathered at once; what belongs to no layer stays from the forward to the backward pass."""
    count = shape.parameters - shape.linear_weights + _LAYERS_AHEAD * (shape.linear_weights // shape.layers)
    return count, "parameters of two layers and of none"


def _activations(shape: ModelShape, use: MemoryUse, phase: Phase) -> list[MemoryLine]:
    rows, tokens = (use.rows, "trajectories" if use.all_rows else "rows"), (use.all_rows or use.tokens, "tokens")
    layers = (1, "layer at a time") if use.checkpointing else (shape.layers, "layers")
    lines = []
    if use.checkpointing:
        residual = (shape.hidden, "numbers"), (_weight_bytes(use), "bytes")
        lines += [_line("checkpoints", phase, rows, tokens, (shape.layers, "layers"), *residual)]
    if use.mixed and _weight_bytes(use) == _FLOAT:
        copied = shape.linear_weights // shape.layers, "weights"
        lines += [_line("bfloat16 copies", phase, layers, copied, (2, "bytes"))]
    kept = (activation_bytes(shape, use), "bytes")
    return [*lines, _line("activations", phase, rows, tokens, layers, kept)]


def _compute_bytes(use: MemoryUse) -> int:
    return 2 if use.mixed else use.weight_bytes


def _held_bytes(use: MemoryUse) -> int:
    """Of a number of the weights between passes: DeepSpeed keeps them in the precision that they compute in."""
    return _compute_bytes(use) if use.launch.is_deepspeed else use.weight_bytes


def _weight_bytes(use: MemoryUse) -> int:
    """Bytes of one of the weights as the layers see them."""
    return _compute_bytes(use) if use.launch.casts_weights else use.weight_bytes


def _critic_bytes(use: MemoryUse) -> int:
    """Of a number of the critic's weights, which DeepSpeed's engine has no part in."""
    return _FLOAT if use.lora_rank else use.weight_bytes


def _critic_parts(use: MemoryUse) -> int:
    """A critic that is a model of its own is divided wherever the policy is; an adapter stays whole."""
    return 1 if use.lora_rank or use.launch.engine == "DDP" else use.launch.processes


def _line(name: str, phase: Phase, *factors: tuple[int, str], parts: int = 1) -> MemoryLine:
    total = math.prod(number for number, _ in factors)
    formula = " · ".join(f"{number:,} {what}" for number, what in factors)
    return MemoryLine(name, -(-total // parts), formula + f" / {parts} processes" * (parts > 1), phase)
