"""Evidence for `docs/upstream_vllm_hang.md`: TRL's own loop of tool calls on a vLLM server, on two processes.

Run by hand, not by the tests, because it does not end well:

    torchrun --standalone --nproc_per_node 2 -m tests.support.ragen_trl.trl_tool_loop 2 2 2   # ends
    torchrun --standalone --nproc_per_node 2 -m tests.support.ragen_trl.trl_tool_loop 2 1 2   # does not

The first number is that of the completions on each process, the others say how many tool calls those of either process
make. Everything is TRL's and unchanged except what ``VLLMGeneration`` connects to: instead of an HTTP client an
object that answers by a script, on the main process as in TRL. Processes that wait for each other write where they
stand after 30 seconds, and the script ends with an error.
"""

import faulthandler
import os
import sys
import tempfile
from typing import Any

from datasets import Dataset
from transformers import PreTrainedTokenizerBase, Qwen2Config, Qwen2ForCausalLM
from trl import GRPOConfig, GRPOTrainer
from trl.generation.vllm_generation import VLLMGeneration

from tests.support.ragen_trl.chat_families import FAMILIES

CALL = '<tool_call>\n{"name": "roll", "arguments": {}}\n</tool_call><|im_end|>'
SECONDS = 30


def roll() -> str:
    """Roll a die.

    Returns:
        What it shows.
    """
    return "6"


class ScriptedServer:
    """Has the completions of every process call the tool as often as ``calls`` says, then say something."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, calls: list[int]) -> None:
        self.tokenizer, self.calls = tokenizer, calls

    def get_server_info(self) -> dict[str, Any]:
        return {"model_config": {"logprobs_mode": "processed_logprobs"}}

    def update_named_params(self, metadata: Any, named_params: Any) -> None:
        list(named_params)

    def reset_prefix_cache(self) -> None:
        pass

    def generate(self, prompts: list[list[int]], n: int, **_: Any) -> dict[str, Any]:
        done = [self.tokenizer.decode(ids).count("<tool_response>\n6") for ids in prompts]
        wanted = [self.calls[place * len(self.calls) // len(prompts)] for place in range(len(prompts))]
        replies = [CALL if made < times else "Done.<|im_end|>" for made, times in zip(done, wanted, strict=True)]
        ids = [self.tokenizer.encode(reply, add_special_tokens=False) for reply in replies for _ in range(n)]
        return {"prompt_ids": prompts, "completion_ids": ids, "logprobs": [[[-1.0]] * len(row) for row in ids]}


def make_trainer(folder: str, rows: int, calls: list[int]) -> GRPOTrainer:
    """One group, half of it on either process."""

    def scripted(self: VLLMGeneration) -> None:
        if self.accelerator.is_main_process:
            self.vllm_client = ScriptedServer(self.processing_class, calls)

    VLLMGeneration._init_vllm = scripted
    tokenizer = FAMILIES["qwen2_5"].tokenizer()
    tokenizer.pad_token = "<|endoftext|>"
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, **sizes))
    args = GRPOConfig(
        output_dir=folder,
        use_vllm=True,
        vllm_mode="server",
        max_steps=1,
        per_device_train_batch_size=rows,
        num_generations=2 * rows,
        max_completion_length=2000,
        use_cpu=True,
        bf16=False,
        ddp_backend="gloo",
        save_strategy="no",
        report_to="none",
    )
    return GRPOTrainer(
        model,
        reward_funcs=lambda completions, **_: [float(len(completion)) for completion in completions],
        train_dataset=Dataset.from_dict({"prompt": [[{"role": "user", "content": "Roll."}]]}),
        processing_class=tokenizer,
        tools=[roll],
        args=args,
    )


if __name__ == "__main__":
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    with tempfile.TemporaryDirectory() as folder:
        rows, *calls = map(int, sys.argv[1:])
        trainer = make_trainer(folder, rows, calls)
        trainer.train()
    calls_made = trainer.state.log_history[0]["tools/call_frequency"]
    print(f"process {os.environ['RANK']} ended: {calls_made} tool calls per completion")  # noqa: T201
    sys.stdout.flush()
    os._exit(0)
