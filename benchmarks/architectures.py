"""Which kinds of models are trained on the tokens that they sampled, at the log-probabilities at which they did?

    python benchmarks/architectures.py                  # about five minutes
    python benchmarks/architectures.py --smoke          # a few of them, written to runs/ only
    python benchmarks/architectures.py --models gpt2 opt

A small model of each kind, with random weights, plays one rollout of four start states whose first messages differ in
length, three turns an episode, and takes one update with ``StarPOTrainer``. Before the update the trainer compares its
log-probabilities of the sampled tokens with the sampler's (``trainers/self_check.py``); that gap is what is written, or
the message of a refusal. Next to it, outside the trainer: how far a batch padded on the left is from rows on their own,
with positions (what training with vLLM does) and without (what TRL does by itself). Writes
``results/architectures.json``.
"""

import argparse
import json
import logging
import shlex
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from measuring.small_adapters import ADAPTERS
from measuring.small_models import MODELS, config_of
from peft import PeftConfig
from records.results import write_result
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel

from ragen_envs import TextEnv
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.policies.model_calls import with_positions
from ragen_trl.policies.model_support import UnsupportedModelError, check_policy
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.trainers.self_check import Gap, SamplerMismatchError

SMOKE = ("llama", "gpt2", "opt", "phi3, longrope", "gpt_neo, local", "mamba", "bloom", "qwen2_5_vl")
LENGTHS = (60, 45, 20)
TOKENIZER = build_tiny_tokenizer()


class Pages(TextEnv):
    """Shows a page of 1 to 12 lines, whatever is done, so that prompts and observations differ in length."""

    instruction = "Read."
    actions = ("Left",)

    def _start(self, options: Any) -> str:
        return self._page()

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        return self._page(), 0.0, False, {"success": False, "action_is_effective": False}

    def _page(self) -> str:
        return "\n".join(f"line {number}" for number in range(int(self.np_random.integers(1, 13))))


class Checked(StarPOTrainer):
    """Keeps the gap that the self-check finds."""

    found: Gap | None = None

    def check_gap_to_sampler(self, *args: Any) -> Gap:
        """As in the trainer, and kept."""
        self.found = super().check_gap_to_sampler(*args)  # with one micro-batch and no stage 1: called once
        return self.found


def main() -> None:
    """Try the models, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="NAME")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "architectures.json")
    options = parser.parse_args()
    if options.smoke:
        options.models, options.output = list(SMOKE), Path("runs") / "benchmark-architectures-smoke.json"
    adapters = {name: tried("llama", make()) for name, make in ({} if options.smoke else ADAPTERS).items()}
    found = {}
    for name in options.models:
        found[name] = tried(name)
        print(f"{name:24} {json.dumps(found[name])}", flush=True)
    some = [] if options.models == list(MODELS) else ["--models", *options.models]
    command = shlex.join(["python", "benchmarks/architectures.py", *some])
    write_result(options.output, command, seed=0, models=found, adapters=adapters)


def tried(name: str, adapter: PeftConfig | None = None) -> dict[str, Any]:
    """What happens when a model of this kind is trained: the gap, or the refusal.

    Returns:
        ``type``; ``gap`` (tokens, mean and largest, in nats) or ``refused``; and ``padded``, the largest difference
        that padding on the left makes, with and without positions, if the model reads text alone.
    """
    config = config_of(name, len(TOKENIZER), TOKENIZER.eos_token_id)
    kind: dict[str, Any] = {"type": config.model_type}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        args = options_of(folder, "no router loss" in name)
        try:
            check_policy(folder_of(config, Path(folder)), args, adapter)  # from the configuration: there are no weights
            model = model_of(config)
            trainer = Checked(model, Pages, args, processing_class=TOKENIZER, peft_config=adapter)
            trainer.train()
        except (UnsupportedModelError, SamplerMismatchError) as refusal:
            return {**kind, "refused": str(refusal).replace(repr(folder), repr(name)), **padding(config)}
        except (RuntimeError, AttributeError, TypeError, IndexError) as error:  # TRL or Transformers cannot train it
            last = str(error).strip().splitlines()[-1]
            return {**kind, "failed": f"{type(error).__name__}: {last}", **padding(config)}
    assert trainer.found is not None
    return {**kind, "gap": trainer.found._asdict(), **padding(config)}


def options_of(folder: str, without_router_loss: bool = False) -> StarPOConfig:
    """One update on four groups of two."""
    return StarPOConfig(
        output_dir=folder,
        **{"router_aux_loss_coef": 0.0 if without_router_loss else None},
        **{"max_steps": 1, "num_generations": 2, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1},
        **{"think": False, "max_turns": 3, "max_reply_length": 8, "max_completion_length": 200, "format_penalty": 0.0},
        **{"temperature": 0.8, "beta": 0.0},
        **{"report_to": "none", "logging_strategy": "no", "save_strategy": "no", "use_cpu": True, "bf16": False},
        **{"disable_tqdm": True, "gradient_checkpointing": False, "dataloader_pin_memory": False},
    )


def folder_of(config: PretrainedConfig, folder: Path) -> str:
    """A saved model's folder that holds no weights."""
    config.save_pretrained(folder)
    return str(folder)


def model_of(config: PretrainedConfig) -> PreTrainedModel:
    """A model with random weights, always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval()


def padding(config: PretrainedConfig) -> dict[str, Any]:
    """How far the log-probabilities of rows that are padded on the left are from those of each row alone."""
    if config.get_text_config() is not config:
        return {}
    model = model_of(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        ids = torch.randint(8, config.vocab_size, (len(LENGTHS), max(LENGTHS)))
    attention = torch.stack([(torch.arange(max(LENGTHS)) >= max(LENGTHS) - length).long() for length in LENGTHS])
    calls = {"with_positions": with_positions(model, model, attention), "without": model}
    return {"padded": {name: _largest_gap(call, model, ids, attention) for name, call in calls.items()}}


@torch.no_grad()
def _largest_gap(call: Any, model: PreTrainedModel, ids: torch.Tensor, attention: torch.Tensor) -> float:
    padded = call(input_ids=ids, attention_mask=attention, use_cache=False).logits.log_softmax(-1)
    gaps: Sequence[float] = [
        (
            padded[row, -length:]
            - model(input_ids=ids[row : row + 1, -length:], use_cache=False).logits[0].log_softmax(-1)
        )
        .abs()
        .max()
        .item()
        for row, length in enumerate(LENGTHS)
    ]
    return max(gaps)


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    logging.disable(logging.WARNING)
    main()
