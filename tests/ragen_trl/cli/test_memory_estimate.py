"""The memory estimate: the published Qwen2.5-0.5B by hand, and what torch holds in a small update, tensor by tensor."""

from functools import partial
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2Config, Qwen2ForCausalLM, T5Config
from trl.trainer.utils import add_fused_lm_head

from ragen_trl.cli.memory_estimate import (
    MemoryUse,
    ModelShape,
    ModelShapeError,
    activation_bytes,
    memory_lines,
    peak_bytes,
    phase_bytes,
    shape_of,
)
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import play
from tests.support.ragen_trl.cached_models import CHAT
from tests.support.ragen_trl.fake_envs import Quiz
from tests.support.ragen_trl.live_bytes import counted

QWEN = Qwen2Config(
    vocab_size=151936,
    hidden_size=896,
    intermediate_size=4864,
    num_hidden_layers=24,
    num_attention_heads=14,
    num_key_value_heads=2,
    tie_word_embeddings=True,
)
ON_GPU = {"rows": 8, "tokens": 2048, "rollout_rows": 128, "mixed": True, "triton": True}


@pytest.fixture(scope="module")
def qwen() -> ModelShape:
    """Read once; nothing of it lies in memory."""
    return shape_of(QWEN)


def by_name(shape: ModelShape, use: MemoryUse) -> dict[str, int]:
    """Bytes of every line."""
    return {line.name: line.bytes for line in memory_lines(shape, use)}


def test_the_shape_of_qwen_has_the_published_number_of_parameters(qwen: ModelShape) -> None:
    attention = 2 * 896 * 896 + 2 * 896 * 128
    assert qwen.linear_weights == 24 * (attention + 3 * 896 * 4864)
    biases_and_norms = 24 * (896 + 2 * 128 + 2 * 896) + 896
    assert qwen.parameters == 151936 * 896 + qwen.linear_weights + biases_and_norms == 494_032_768
    assert qwen.linear_widths == 24 * (4 * 896 + 2 * (896 + 128) + 3 * (896 + 4864))


def test_full_fine_tuning_of_qwen_on_a_gpu_by_hand(qwen: ModelShape) -> None:
    found = by_name(qwen, MemoryUse(**ON_GPU))
    parameters = 494_032_768
    assert found["weights"] == found["gradients"] == 4 * parameters
    assert found["AdamW"] == 8 * parameters
    # Two key-value heads of 64 numbers in bfloat16; an eighth more slots than tokens.
    assert found["keys and values"] == 24 * 2 * 128 * 2 * 128 * 2304
    assert found["bfloat16 weights"] == 2 * (qwen.linear_weights + 151936 * 896)
    # Two residual streams, three of the 896 queries, the mask; copies of keys and values for all heads, 64 rows.
    attention = 4096 * (2 * 4 * 896 + 3 * 2 * 896 + 3 * 2048)
    assert found["a pass that reads prompts"] == attention + 64 * 2048 * 2 * 2 * 896
    assert found["a pass that reads prompts"] > 128 * 151936 * 16  # what the draw of a token takes
    assert found["checkpoints"] == 8 * 2048 * 24 * 896 * 4
    assert found["bfloat16 copies"] == 2 * (2 * 896 * 896 + 2 * 896 * 128 + 3 * 896 * 4864)
    kept = 26 * 896 + 8 * 896 + 8 * 4864 + 2 * 2048 + 4 * 14 + 8
    assert found["activations"] == 8 * 2048 * kept
    head = by_name(qwen, MemoryUse(**ON_GPU, checkpointing=False))["language-model head"]
    assert head == 4096 * 32768 * 2 + (151936 + 8 * 2048) * 896 * 4
    assert head < found["activations"] and "language-model head" not in found  # they are not there at the same time
    update = sum(found[name] for name in ("gradients", "checkpoints", "bfloat16 copies", "activations"))
    rollout = found["keys and values"] + found["bfloat16 weights"] + found["a pass that reads prompts"]
    peak = peak_bytes(memory_lines(qwen, MemoryUse(**ON_GPU)))
    assert peak == found["weights"] + found["AdamW"] + max(rollout, update)


def test_fewer_trajectories_at_a_time_take_less_for_keys_and_values(qwen: ModelShape) -> None:
    all_, few = (by_name(qwen, MemoryUse(**{**ON_GPU, "rollout_rows": rows})) for rows in (128, 32))
    assert all_["keys and values"] == 4 * few["keys and values"]
    assert all_["weights"] == few["weights"]


def test_lora_holds_its_own_matrices_three_times_and_no_gradient_of_the_head(qwen: ModelShape) -> None:
    found = by_name(qwen, MemoryUse(**ON_GPU, lora_rank=64, weight_bytes=2, reference=True, checkpointing=False))
    adapter = 64 * 549_888
    assert adapter == 35_192_832
    assert found["LoRA"] == found["gradients"] == 4 * adapter
    assert found["AdamW"] == 8 * adapter
    assert found["weights"] == 2 * 494_032_768
    assert found["language-model head"] == 4096 * 32768 * 2 + 8 * 2048 * 896 * 4
    assert not {"reference", "bfloat16 copies"} & set(found)  # the base is the reference, and is bfloat16 already


def test_reference_critic_and_vllm_change_only_their_own_lines(qwen: ModelShape) -> None:
    plain = MemoryUse(**ON_GPU)
    lines = memory_lines(qwen, plain)
    more = memory_lines(qwen, MemoryUse(**ON_GPU, reference=True, critic=True))
    added = [line for line in more if line not in lines]
    weights = 4 * 494_032_768
    assert {line.name: line.bytes for line in added if line.phase == "always"} == {
        "reference": weights,
        "critic": 3 * weights,
    }
    assert peak_bytes(more) == peak_bytes(lines) + 4 * weights  # its fit is not at the same time as a rollout
    without = memory_lines(qwen, MemoryUse(**{**ON_GPU, "rollout_rows": 0}))
    assert [line for line in lines if line.phase != "rollout"] == without


@pytest.mark.parametrize("rank", [0, 16])
def test_a_rollout_ahead_is_held_beside_the_update_with_a_copy_of_what_is_trained(qwen: ModelShape, rank: int) -> None:
    after, beside = (MemoryUse(**ON_GPU, lora_rank=rank, ahead=ahead) for ahead in (False, True))
    trained = 4 * (rank * qwen.linear_widths if rank else qwen.parameters)
    assert set(by_name(qwen, beside).items()) - set(by_name(qwen, after).items()) == {
        ("copy for the next rollout", trained)
    }
    lines = memory_lines(qwen, after)
    held, played = phase_bytes(lines, "critic"), phase_bytes(lines, "rollout")
    if rank:  # beside an update autocast casts the frozen weights for every pass, and keeps nothing
        (casts,) = (line.bytes for line in lines if line.name == "bfloat16 weights")
        assert "bfloat16 weights" not in by_name(qwen, beside)
        played -= casts
    assert peak_bytes(memory_lines(qwen, beside)) == phase_bytes(lines, "update") + (played - held) + trained


def test_a_micro_batch_twice_as_large_keeps_twice_the_activations(qwen: ModelShape) -> None:
    small = by_name(qwen, MemoryUse(rows=4, tokens=100, rollout_rows=0, checkpointing=False))
    large = by_name(qwen, MemoryUse(rows=8, tokens=100, rollout_rows=0, checkpointing=False))
    assert large["activations"] == 2 * small["activations"]
    assert large["weights"] == small["weights"]


def test_a_rollout_holds_a_row_at_a_time_and_an_update_all_rows_of_a_trajectory(qwen: ModelShape) -> None:
    whole, rows = (by_name(qwen, MemoryUse(**ON_GPU, all_rows=count)) for count in (None, 3 * 2048))
    assert rows["keys and values"] == whole["keys and values"]
    for name in ("checkpoints", "activations"):
        assert rows[name] == 3 * whole[name]
    head = by_name(qwen, MemoryUse(**ON_GPU, all_rows=3 * 2048, checkpointing=False))["language-model head"]
    assert head == 4096 * 32768 * 2 + (151936 + 8 * 3 * 2048) * 896 * 4


def test_a_model_that_is_no_decoder_is_refused_by_name() -> None:
    with pytest.raises(ModelShapeError, match="t5"):
        shape_of(T5Config())


SMALL = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "tie_word_embeddings": True}


def small_model(layers: int, lora: int, dtype: torch.dtype = torch.float32, **sizes: int) -> Any:
    """A Qwen2 as a trainer would hold it."""
    config = Qwen2Config(**{"vocab_size": 64, "intermediate_size": 512, **SMALL, **sizes}, num_hidden_layers=layers)
    model = Qwen2ForCausalLM(config).to(dtype)
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    if lora:
        model = get_peft_model(model, LoraConfig(r=lora, target_modules="all-linear", task_type="CAUSAL_LM"))
    return model.train()


def kept_bytes(layers: int, lora: int, dtype: torch.dtype, mixed: bool) -> int:
    """What autograd keeps of a forward pass, storages once and parameters left out."""
    torch.manual_seed(0)
    model = small_model(layers, lora, dtype)
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept: dict[int, Any] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage
        return tensor

    ids, mask = torch.ones(2, 64, dtype=torch.long), torch.ones(2, 64, dtype=torch.long)
    mask[0, :3] = 0
    backbone = (model.get_base_model() if lora else model).model
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=mixed):
            held = backbone(input_ids=ids, attention_mask=mask)
    assert held.last_hidden_state.shape == (2, 64, 128)
    return sum(storage.nbytes() for storage in kept.values())


@pytest.mark.parametrize("lora", [0, 4])
@pytest.mark.parametrize(("dtype", "mixed"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, True)])
def test_activations_are_what_autograd_keeps_to_the_byte(lora: int, dtype: torch.dtype, mixed: bool) -> None:
    """Layers two and three against one: what is outside the layers cancels. With LoRA, copies of its matrices too."""
    each = (kept_bytes(3, lora, dtype, mixed) - kept_bytes(1, lora, dtype, mixed)) // 2
    size = 2 if dtype == torch.bfloat16 else 4
    shape = shape_of(Qwen2Config(vocab_size=64, intermediate_size=512, **SMALL, num_hidden_layers=3))
    use = MemoryUse(rows=2, tokens=64, rollout_rows=0, weight_bytes=size, mixed=mixed, lora_rank=lora)
    copies = 2 * shape.linear_weights // 3 if mixed and size == 4 else 0
    copies += 2 * lora * shape.linear_widths // 3 if mixed else 0
    assert each == 2 * 64 * activation_bytes(shape, use) + copies


@pytest.mark.parametrize(("lora", "checkpointing"), [(0, False), (0, True), (16, False), (16, True)])
def test_the_estimate_is_near_the_peak_of_two_real_updates(lora: int, checkpointing: bool) -> None:
    """Every tensor of an update as the trainer makes it, TRL's head included, on the CPU in float32."""
    sizes = {"vocab_size": 32768, "hidden_size": 64, "intermediate_size": 256}
    model = small_model(4, lora, **sizes)
    shape = shape_of(Qwen2Config(**{**SMALL, **sizes}, num_hidden_layers=4))
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    ids = torch.randint(0, 32768, (4, 50))
    with counted(model) as live:
        optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-4)
        for _ in range(2):  # the moments are there from the first step on
            output = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids, fused_lm_head=True)
            (output.log_probs.mean() + 0.01 * output.entropy.mean()).backward()
            optimizer.step()
            optimizer.zero_grad()
    use = MemoryUse(rows=4, tokens=50, rollout_rows=0, lora_rank=lora, checkpointing=checkpointing)
    estimated = peak_bytes(memory_lines(shape, use))
    assert 0.85 < estimated / live.peak < 1.2


ROLLOUTS: dict[str, dict[str, Any]] = {
    "float32": {},
    "float32, eight query heads for two of keys": {"num_attention_heads": 8, "num_key_value_heads": 2},
    "many words": {"vocab_size": 60_000, "num_hidden_layers": 1},
    "so many words that few rows are drawn at once": {"vocab_size": 250_000, "num_hidden_layers": 1},
    "wide feed-forward layer": {"intermediate_size": 4096, "num_hidden_layers": 1},
    "mixed precision": {"mixed": True},
    "mixed precision, LoRA": {"mixed": True, "lora": 8},
    "bfloat16 weights": {"dtype": torch.bfloat16},
}


@pytest.mark.parametrize("name", ROLLOUTS)
def test_the_estimate_is_within_15_percent_of_the_peak_of_a_real_rollout(name: str) -> None:
    """Every tensor of it; 20 rows of three turns, of which 12 play at a time."""
    sizes = {"vocab_size": 2000, "num_key_value_heads": 4, **ROLLOUTS[name]}
    mixed, lora, dtype = (sizes.pop(key, default) for key, default in (("mixed", False), ("lora", 0), ("dtype", None)))
    layers = sizes.pop("num_hidden_layers", 4)
    model = small_model(layers, lora, dtype or torch.float32, **sizes)
    autocast = partial(torch.autocast, "cpu", dtype=torch.bfloat16, enabled=mixed)
    policy = TransformersPolicy(model, CHAT, Sampling(6), autocast)
    envs = [Quiz(3, padding=150 + row) for row in range(20)]
    with counted(model) as live:
        played = play(envs, policy, [Start(row, 0, row) for row in range(20)], batch_size=12)
    shape = shape_of(Qwen2Config(**{**SMALL, "intermediate_size": 512, **sizes}, num_hidden_layers=layers))
    use = MemoryUse(
        rows=1,
        tokens=max(len(one.token_ids) for one in played),
        rollout_rows=12,
        weight_bytes=2 if dtype else 4,
        mixed=mixed,
        lora_rank=lora,
        prompt=max(len(turn.prompt_ids) for one in played for turn in one.turns),
    )
    lines = memory_lines(shape, use)
    optimizer = next(line.bytes for line in lines if line.name == "AdamW")  # it has made no step
    assert 0.85 < (phase_bytes(lines, "rollout") - optimizer) / live.peak < 1.15
