"""Rows packed after their common beginnings: the tree by hand, and every model's values and gradients row by row."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    FalconConfig,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    OlmoConfig,
    OPTConfig,
    PhiConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)
from trl.trainer.utils import add_fused_lm_head

from ragen_trl.batching import shared_prefixes
from ragen_trl.batching.shared_prefixes import PackedModel, share_prefixes
from ragen_trl.policies.model_calls import with_positions

SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SIZE, "num_key_value_heads": 2, "max_position_embeddings": 128}
KINDS: dict[str, Any] = {
    "llama": LlamaConfig(**GROUPED),
    "llama, eager": LlamaConfig(**GROUPED, attn_implementation="eager"),
    "qwen2": Qwen2Config(**GROUPED),
    "qwen3": Qwen3Config(**GROUPED, head_dim=8),
    "gemma2, soft caps": Gemma2Config(**GROUPED, head_dim=8, sliding_window=128, attn_implementation="eager"),
    "gpt2, learned positions": GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128),
    "opt": OPTConfig(vocab_size=64, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4),
    "phi": PhiConfig(**GROUPED),
    "olmo": OlmoConfig(**GROUPED),
    "falcon, rotary": FalconConfig(
        vocab_size=64, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, new_decoder_architecture=False
    ),
    "mixtral": MixtralConfig(**GROUPED, num_local_experts=4, sliding_window=None),
}


def model_of(config: Any, temperature: float = 0.7) -> PreTrainedModel:
    torch.manual_seed(0)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(copy.deepcopy(config))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)  # or all tokens would be about as probable
    add_fused_lm_head(model, temperature=temperature, outputs=("log_probs", "entropy", "is_top1"))
    return model.eval()


def rows_of(seed: int = 0) -> dict[str, torch.Tensor]:
    """Seven rows of an instruction, three starts, and replies that partly begin alike; one is filler, two are equal."""
    generator = torch.Generator().manual_seed(seed)

    def tokens(count: int) -> list[int]:
        return torch.randint(4, 64, (count,), generator=generator).tolist()

    instruction, starts, reply = tokens(9), [tokens(4), tokens(6), tokens(4)], tokens(12)
    rows = [(instruction + starts[0], reply[:5] + tokens(9)), (instruction + starts[0], reply)]
    rows += [(instruction + starts[0], reply), (instruction + starts[0], reply[:5])]
    rows += [(instruction + starts[1], tokens(15)), (starts[2], tokens(7)), (instruction + starts[1], [])]
    width, length = max(len(prompt) for prompt, _ in rows), max(len(reply) for _, reply in rows)
    ids, attention = torch.zeros(2, len(rows), width + length, dtype=torch.long)
    for row, (prompt, completion) in enumerate(rows):
        ids[row, width - len(prompt) : width + len(completion)] = torch.tensor(prompt + completion)
        attention[row, width - len(prompt) : width + len(completion)] = 1
    labels = ids.masked_fill(attention == 0, -100)
    labels[:, :width] = -100
    sampled = torch.rand(ids.shape, generator=generator) < 0.6
    return {"input_ids": ids, "attention_mask": attention, "labels": labels, "sampled": sampled}


def scores(call: Any, rows: dict[str, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities and entropies of the sampled tokens, 0 elsewhere."""
    given = {key: value for key, value in rows.items() if key != "sampled"}
    found = call(**given, fused_lm_head=True)
    others = ~rows["sampled"][:, 1:] | (rows["labels"][:, 1:] == -100)
    return found.log_probs.masked_fill(others, 0.0), found.entropy.masked_fill(others, 0.0)


def gradients(model: torch.nn.Module, values: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """All gradients of a sum with different weights, in one vector."""
    model.zero_grad()
    weights = torch.linspace(0.5, 2.0, values[0].numel()).reshape(values[0].shape)
    (values[0] * weights + 0.1 * values[1] * weights).sum().backward()
    return torch.cat([value.grad.flatten() for value in model.parameters() if value.grad is not None])


def test_a_tree_by_hand() -> None:
    """Rows 1 2 3 4, 1 2 5, 7: places in the order of a depth-first walk; the last token of a row is only predicted."""
    ids = torch.tensor([[1, 2, 5, 0], [7, 9, 0, 0], [1, 2, 3, 4]])
    scored = torch.tensor([[0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 1, 1]])
    rows = share_prefixes(ids, ids != 0, scored, hidden_size=1_000_000)
    assert rows.ids.tolist() == [[1, 2, 3, 7]]  # 5, 4 and 9 end their rows
    assert rows.positions.tolist() == [[0, 1, 2, 0]]
    assert rows.last.tolist() == [[2, 2, 2, 3]]
    assert rows.visible[0, 0].int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 1]]
    pairs = list(zip(rows.predictors.tolist(), rows.labels.tolist(), strict=True))
    assert pairs == [(1, 3), (1, 5), (2, 4), (3, 9)]  # 2 predicts 3 in one row and 5 in another
    assert rows.index.tolist() == [[4, 4, 1, 4], [4, 3, 4, 4], [4, 4, 0, 2]]
    assert (rows.places, rows.tokens) == (4, 6)
    assert rows.unpacked(torch.tensor([0.1, 0.2, 0.3, 0.4])).tolist()[0] == [0.0, 0.0, pytest.approx(0.2), 0.0]


def test_a_subtree_ends_where_a_row_leaves_it() -> None:
    ids = torch.tensor([[1, 2, 3, 9], [1, 2, 4, 9], [1, 5, 6, 9], [1, 5, 9, 0]])
    scored = (ids == 9).int()
    rows = share_prefixes(ids, ids != 0, scored, hidden_size=1_000_000)
    assert rows.ids.tolist() == [[1, 2, 3, 4, 5, 6]]
    assert rows.last.tolist() == [[5, 3, 2, 3, 5, 5]]


def test_rows_that_share_little_stay_apart_where_attention_is_dear() -> None:
    """Two long rows with one token in common: together they would have four times the pairs of one."""
    ids = torch.arange(1, 401).reshape(2, 200)
    ids[:, 0] = 1
    scored = torch.zeros_like(ids)
    scored[:, -1] = 1
    apart = share_prefixes(ids, torch.ones_like(ids), scored, hidden_size=32)
    assert apart.ids.shape == (2, 199)
    together = share_prefixes(ids, torch.ones_like(ids), scored, hidden_size=1_000_000)
    assert together.ids.shape == (1, 397)


def test_no_other_cut_costs_less() -> None:
    """Four rows of one prompt, which trees that begin with the first row alone would have kept apart."""
    generator = torch.Generator().manual_seed(0)
    lengths = [77, 77, 83, 77]
    ids = torch.randint(1, 500, (4, 60 + 83 + 1), generator=generator)
    ids[:, :60] = ids[0, :60]
    attention = torch.arange(ids.shape[1]) < torch.tensor([[60 + length + 1] for length in lengths])
    scored = attention.clone()
    scored[:, :60] = False
    rows = share_prefixes(ids * attention, attention, scored, hidden_size=128)
    assert len(rows.ids) == 2 and rows.ids.shape[1] <= 60 + 77 + 83


def test_many_rows_are_cut_without_trying_every_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the n²/2 lengths that neighbours may have was tried: 30 000 here, and 130 000 for 512 rows."""
    tried: list[int] = []
    fewest = shared_prefixes._filled

    def counted(lengths: Sequence[int], ends: Sequence[int], limit: int) -> list[range]:
        tried.append(limit)
        return fewest(lengths, ends, limit)

    monkeypatch.setattr(shared_prefixes, "_filled", counted)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(1, 50, (256, 200), generator=generator)
    ids[:, :30] = ids[0, :30]
    attention = torch.arange(200) < torch.randint(40, 200, (256, 1), generator=generator)
    rows = share_prefixes(ids * attention, attention, attention & (torch.arange(200) > 30), hidden_size=896)
    assert 1 < len(rows.ids) < 256
    assert len(tried) < 4 * 256


def test_single_rows_need_no_mask() -> None:
    model, rows = model_of(KINDS["llama"]), rows_of()
    seen: list[Any] = []

    def spy(**inputs: Any) -> Any:
        seen.append(inputs["attention_mask"])
        return model(**inputs)

    scores(PackedModel(spy, model, rows["sampled"]), rows)
    apart = {key: value[[0, 4]] for key, value in rows.items()}
    for key in apart:
        apart[key] = apart[key].roll(1, 0)
    alone = {key: value[:1] for key, value in apart.items()}
    scores(PackedModel(spy, model, alone["sampled"]), alone)
    assert seen[0] is not None and seen[1] is None


def test_a_mixture_that_asks_for_its_routers_loss() -> None:
    """As TRL's supervised training leaves it, or as it came from the hub: the mask is no (B, T)."""
    config = copy.deepcopy(KINDS["mixtral"])
    config.output_router_logits = True
    model, rows = model_of(config), rows_of()
    packed = scores(PackedModel(model, model, rows["sampled"]), rows)[0]
    torch.testing.assert_close(packed, scores(model_of(KINDS["mixtral"]), rows)[0], rtol=1e-3, atol=1e-4)


def test_a_batch_without_a_sampled_token_gives_zeros_with_gradients() -> None:
    model, rows = model_of(KINDS["llama"]), rows_of()
    rows["sampled"][:] = False
    assert gradients(model, scores(PackedModel(model, model, rows["sampled"]), rows)).abs().max() == 0


@pytest.mark.parametrize("hidden_size", [None, 1], ids=["one tree", "several trees"])
@pytest.mark.parametrize("kind", KINDS)
def test_values_and_gradients_are_those_of_single_rows(
    kind: str, hidden_size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ragen_trl.batching.shared_prefixes.ATTENTION_COST", 0.0 if hidden_size is None else 10.0)
    model, rows = model_of(KINDS[kind]), rows_of()
    packed = scores(PackedModel(model, model, rows["sampled"]), rows)
    found = gradients(model, packed)
    plain = scores(with_positions(model, model, rows["attention_mask"]), rows)
    expected = gradients(model, plain)
    torch.testing.assert_close(packed[0], plain[0], rtol=1e-4, atol=2e-5)
    torch.testing.assert_close(packed[1], plain[1], rtol=1e-4, atol=2e-5)
    assert (found - expected).norm() <= 1e-5 * expected.norm()
    assert packed[0].abs().max() > 1.0


def test_in_float64_nothing_differs_but_the_order_of_sums() -> None:
    model, rows = model_of(KINDS["qwen2"]).double(), rows_of(1)
    packed = scores(PackedModel(model, model, rows["sampled"]), rows)
    found = gradients(model, packed)
    plain = scores(with_positions(model, model, rows["attention_mask"]), rows)
    torch.testing.assert_close(packed[0], plain[0], rtol=0, atol=1e-7)  # the fused head's log-probabilities are float32
    assert (found - gradients(model, plain)).norm() <= 1e-6 * found.norm()


@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_with_gradient_checkpointing(checkpointing: bool) -> None:
    base = model_of(KINDS["llama"])
    torch.manual_seed(1)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    model.train()
    rows = rows_of(2)
    found = gradients(model, scores(PackedModel(model, base, rows["sampled"]), rows))
    plain = gradients(model, scores(with_positions(model, base, rows["attention_mask"]), rows))
    assert (found - plain).norm() <= 1e-5 * plain.norm() and len(found) < 40_000


def test_under_autocast() -> None:
    model, rows = model_of(KINDS["llama"]), rows_of()
    with torch.autocast("cpu", torch.bfloat16):
        packed = scores(PackedModel(model, model, rows["sampled"]), rows)[0]
    plain = scores(with_positions(model, model, rows["attention_mask"]), rows)[0]
    assert (packed - plain).abs().max() < 0.5 and (packed - plain).abs().mean() < 0.05


def test_the_most_probable_token_is_told() -> None:
    model, rows = model_of(KINDS["llama"]), rows_of()
    given = {key: value for key, value in rows.items() if key != "sampled"}
    packed, plain = PackedModel(model, model)(**given, fused_lm_head=True), model(**given, fused_lm_head=True)
    counted = plain.label_mask.clone()
    assert torch.equal(packed.label_mask, counted)
    assert packed.is_top1.sum() == plain.is_top1.sum()
