"""vLLM without vLLM: TRL's own ``VLLMGeneration``, holding a copy of the policy instead of an engine or a server.

The copy has weights of its own, which only ``sync_weights`` changes. It samples row by row, with a generator seeded by
the request.
"""

import copy
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import PreTrainedModel
from trl.generation.vllm_generation import VLLMGeneration

from tests.support.ragen_trl.trainers import LAKE, TOKENIZER, small_model, small_trainer

LORA: dict[str, Any] = {"r": 4, "lora_alpha": 8, "target_modules": ["q_proj", "v_proj", "down_proj"]}
# Options of one of two processes that share a server; with this seed one plays up to 8 turns at last, the other 4.
SERVER: dict[str, Any] = {
    "use_vllm": True,
    "vllm_mode": "server",
    "per_device_train_batch_size": 2,
    "num_generations": 2,
    "max_completion_length": 600,
    "learning_rate": 1e-2,
    "seed": 0,
}


class FakeModel:
    """The weights that an engine or a server has, and what it was asked."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = copy.deepcopy(model).eval()
        self.offset = 0.0  # added to the log-probabilities that it reports
        self.requests: list[SimpleNamespace] = []
        self.loads = 0  # how often weights were sent

    def load(self, name: str, value: torch.Tensor) -> None:
        self.model.get_parameter(name).data.copy_(value)

    @torch.no_grad()
    def sample(
        self, ids: list[int], seed: int, max_tokens: int, temperature: float, stop: list[int], ends: list[str]
    ) -> tuple[list[int], list[float]]:
        asked = SimpleNamespace(ids=list(ids), seed=seed, max_tokens=max_tokens, temperature=temperature, stop=stop)
        self.requests.append(asked)
        rng = torch.Generator().manual_seed(seed)
        reply: list[int] = []
        logprobs: list[float] = []
        cache = None
        while len(reply) < max_tokens and not (reply and reply[-1] in stop):
            if any(text in TOKENIZER.decode(reply, skip_special_tokens=True) for text in ends):
                break
            output = self.model(torch.tensor([reply[-1:] or ids]), past_key_values=cache, use_cache=True)
            logits, cache = output.logits[0, -1], output.past_key_values
            scores = (logits / (temperature or 1.0)).log_softmax(-1)
            token = int(torch.multinomial(scores.exp(), 1, generator=rng)) if temperature else int(scores.argmax())
            reply.append(token)
            logprobs.append(float(scores[token]) + self.offset)
        return reply, logprobs


class FakeLLM:
    """As much of ``vllm.LLM`` as TRL and we use."""

    def __init__(self, fake: FakeModel, max_model_len: int) -> None:
        loader = SimpleNamespace(load_weights=lambda pairs: [fake.load(*pair) for pair in pairs])
        driver = SimpleNamespace(model_runner=SimpleNamespace(model=loader))
        self.llm_engine = SimpleNamespace(
            model_config=SimpleNamespace(max_model_len=max_model_len),
            model_executor=SimpleNamespace(driver_worker=driver),
        )
        self.fake = fake

    def reset_prefix_cache(self) -> None:
        self.fake.loads += 1

    def generate(self, prompts: list[Any], sampling_params: list[Any], use_tqdm: bool) -> list[Any]:
        outputs = []
        for prompt, one in zip(prompts, sampling_params, strict=True):
            sampled = self.fake.sample(
                prompt["prompt_token_ids"],
                one.seed,
                one.max_tokens,
                one.temperature,
                one.stop_token_ids,
                getattr(one, "stop", []),
            )
            places = [{token: SimpleNamespace(logprob=value)} for token, value in zip(*sampled, strict=True)]
            outputs.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=sampled[0], logprobs=places)]))
        return outputs


class FakeClient:
    """As much of TRL's ``VLLMClient`` as TRL and we use."""

    base_url = "http://fake:8000"

    def __init__(self, fake: FakeModel, max_model_len: int = 2048) -> None:
        self.fake = fake
        self.max_model_len = max_model_len

    def get_server_info(self) -> dict[str, Any]:
        return {"model_config": {"logprobs_mode": "processed_logprobs", "max_model_len": self.max_model_len}}

    def update_named_params(self, metadata: Any, named_params: Any) -> None:
        for name, value in named_params:
            self.fake.load(name, value)

    def reset_prefix_cache(self) -> None:
        self.fake.loads += 1

    def generate(
        self,
        prompts: list[list[int]],
        max_tokens: int,
        generation_kwargs: dict[str, Any],
        temperature: float,
        top_k: int,
        top_p: float,
        logprobs: int,
    ) -> dict[str, Any]:
        (ids,) = prompts
        seed, stop = generation_kwargs["seed"], generation_kwargs["stop_token_ids"]
        reply, values = self.fake.sample(ids, seed, max_tokens, temperature, stop, generation_kwargs.get("stop", []))
        return {"prompt_ids": prompts, "completion_ids": [reply], "logprobs": [[[value] for value in values]]}


class FakeGeneration(VLLMGeneration):
    """TRL's class; only what it starts or connects to is ours."""

    def _init_vllm(self) -> None:
        policy = self.model.get_base_model() if self.model.__class__.__name__.startswith("Peft") else self.model
        plain = small_model()  # never a LoRA model: vLLM loads the base
        plain.load_state_dict({name.replace(".base_layer", ""): value for name, value in _plain(policy)})
        self.fake = FakeModel(plain)
        length = self.max_model_length or 2048
        if self.mode == "server":
            if self.accelerator.is_main_process:
                self.vllm_client = FakeClient(self.fake, length)
        else:
            self.llm = FakeLLM(self.fake, length)


def _plain(policy: Any) -> list[tuple[str, torch.Tensor]]:
    return [(name, value) for name, value in policy.state_dict().items() if ".lora_" not in name]


def install_fake_vllm(patch: pytest.MonkeyPatch) -> None:
    """Trainers made from now on get the fake."""
    module = ModuleType("vllm")
    module.__spec__ = ModuleSpec("vllm", None)
    module.SamplingParams = SimpleNamespace  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "vllm", module)
    patch.setattr("trl.trainer.grpo_trainer.VLLMGeneration", FakeGeneration)


def vllm_trainer(
    folder: Path, patch: pytest.MonkeyPatch, env: Any = LAKE, make: Any = small_trainer, **changes: Any
) -> Any:
    """A small trainer, or one that ``make`` makes, whose engine is the fake."""
    install_fake_vllm(patch)
    model = small_model()
    model.name_or_path = "kept somewhere"
    return make(folder, env, model=model, use_vllm=True, **changes)


def fake_of(trainer: Any) -> FakeModel:
    """The weights that its engine has."""
    model: FakeModel = trainer.vllm_generation.fake
    return model
