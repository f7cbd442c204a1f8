"""PEFT's kinds of adapters, as data: what `architectures.py` tries on a small Llama.

Dropout is high where a kind has it, and the adapter begins with random weights where it can, so that a forgotten
dropout or an adapter that only one of two passes has would show.
"""

from collections.abc import Callable

from peft import (
    AdaLoraConfig,
    AdaptionPromptConfig,
    BOFTConfig,
    C3AConfig,
    CPTConfig,
    FourierFTConfig,
    HRAConfig,
    IA3Config,
    LNTuningConfig,
    LoHaConfig,
    LoKrConfig,
    LoraConfig,
    MissConfig,
    MultitaskPromptTuningConfig,
    OFTConfig,
    PeftConfig,
    PrefixTuningConfig,
    PromptEncoderConfig,
    PromptTuningConfig,
    RandLoraConfig,
    RoadConfig,
    ShiraConfig,
    TrainableTokensConfig,
    VBLoRAConfig,
    VeraConfig,
)

_ON = ["q_proj", "v_proj"]
_MLP = ["k_proj", "v_proj", "down_proj"]
_DROP = 0.3
_TASK = "CAUSAL_LM"

ADAPTERS: dict[str, Callable[[], PeftConfig]] = {
    "LoRA": lambda: LoraConfig(target_modules=_ON, lora_dropout=_DROP, init_lora_weights=False),
    "LoRA, rank-stabilised": lambda: LoraConfig(target_modules=_ON, use_rslora=True, init_lora_weights=False),
    "DoRA": lambda: LoraConfig(target_modules=_ON, use_dora=True, lora_dropout=_DROP, init_lora_weights=False),
    "AdaLoRA": lambda: AdaLoraConfig(target_modules=_ON, total_step=10, tinit=1, tfinal=2, lora_dropout=_DROP),
    "IA3": lambda: IA3Config(target_modules=_MLP, feedforward_modules=["down_proj"], init_ia3_weights=False),
    "LoHa": lambda: LoHaConfig(target_modules=_ON, rank_dropout=_DROP, module_dropout=_DROP, init_weights=False),
    "LoKr": lambda: LoKrConfig(target_modules=_ON, rank_dropout=_DROP, module_dropout=_DROP, init_weights=False),
    "OFT": lambda: OFTConfig(target_modules=_ON, oft_block_size=8, module_dropout=_DROP, init_weights=False),
    "BOFT": lambda: BOFTConfig(target_modules=_ON, boft_block_size=8, boft_dropout=_DROP, init_weights=False),
    "VeRA": lambda: VeraConfig(target_modules=_ON, r=8, vera_dropout=_DROP),
    "VB-LoRA": lambda: VBLoRAConfig(target_modules=_ON, vector_length=8, num_vectors=300, vblora_dropout=_DROP),
    "RandLoRA": lambda: RandLoraConfig(target_modules=_ON, r=8, randlora_dropout=_DROP),
    "FourierFT": lambda: FourierFTConfig(target_modules=_ON, n_frequency=16, init_weights=False),
    "HRA": lambda: HRAConfig(target_modules=_ON, init_weights=False),
    "MiSS": lambda: MissConfig(target_modules=_ON, r=8, miss_dropout=_DROP, init_weights=False),
    "SHiRA": lambda: ShiraConfig(target_modules=_ON, r=2),
    "C3A": lambda: C3AConfig(target_modules=_ON, block_size=8, init_weights=False),
    "RoAd": lambda: RoadConfig(target_modules=_ON, group_size=8),
    "LayerNorm tuning": lambda: LNTuningConfig(target_modules=["input_layernorm"]),
    "trainable tokens": lambda: TrainableTokensConfig(token_indices=[5, 6]),
    "prompt tuning": lambda: PromptTuningConfig(task_type=_TASK, num_virtual_tokens=4),
    "prefix tuning": lambda: PrefixTuningConfig(task_type=_TASK, num_virtual_tokens=4),
    "P-tuning": lambda: PromptEncoderConfig(task_type=_TASK, num_virtual_tokens=4),
    "multitask prompt tuning": lambda: MultitaskPromptTuningConfig(task_type=_TASK, num_virtual_tokens=4, num_tasks=1),
    "context-aware prompt tuning": lambda: CPTConfig(
        task_type=_TASK, cpt_token_ids=[1, 2], cpt_mask=[1, 1], cpt_tokens_type_mask=[1, 1]
    ),
    "Llama-Adapter": lambda: AdaptionPromptConfig(task_type=_TASK, adapter_len=4, adapter_layers=1),
}
