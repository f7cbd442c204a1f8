"""Rows packed after their common beginnings: the tree by hand, and every model's values and gradients row by row."""

import copy
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    OPTConfig,
    PreTrainedModel,
    Qwen2Config,
)
from trl.trainer.utils import add_fused_lm_head

from ragen_trl.batching.shared_prefixes import PackedModel, share_prefixes
from ragen_trl.policies.model_calls import with_positions

SIZE = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
GROUPED = {**SIZE, "num_key_value_heads": 2, "max_position_embeddings": 128}
KINDS: dict[str, Any] = {
    "llama": LlamaConfig(**GROUPED),
    "qwen2": Qwen2Config(**GROUPED),
    "gemma2, soft caps": Gemma2Config(**GROUPED, head_dim=8, sliding_window=128, attn_implementation="eager"),
    "gpt2, learned positions": GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=128),
    "opt": OPTConfig(vocab_size=64, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4),
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
    assert rows.unpacked(torch.tensor([0.1, 0.2, 0.3, 0.4])).tolist()[0] == [0.0, 0.0, pytest.approx(0.2), 0.0]


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


def test_adapters_with_gradient_checkpointing() -> None:
    base = model_of(KINDS["llama"])
    torch.manual_seed(1)
    model = get_peft_model(base, LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False))
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.enable_input_require_grads()
    model.train()
    rows = rows_of(2)
    found = gradients(model, scores(PackedModel(model, base, rows["sampled"]), rows))
    plain = gradients(model, scores(with_positions(model, base, rows["attention_mask"]), rows))
    assert (found - plain).norm() <= 1e-5 * plain.norm() and len(found) < 40_000
