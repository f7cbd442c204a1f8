"""Who plays in ``python -m ragen_trl eval``: the baselines, models sampled by Transformers or vLLM, one behind an API.

A model is loaded when its turn comes and dropped after it. Whether it can play at all is seen before: its tokenizer is
asked how long the first message of every environment is.

Leans on vLLM's ``LLM``: arguments as TRL gives them in colocate mode, ``logprobs_mode`` and limits; pinned in
``tests/vllm``. Left out: several models in one command with vLLM, which does not give all its memory back; sampling
from a vLLM server as TRL holds it (any vLLM server speaks the API); adapters inside vLLM (LoRA weights are merged into
a temporary folder, which every version of vLLM can load).
"""

import gc
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerBase

from ragen_trl.cli.eval_plan import MANNER, Task
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.policies.api.policy import ApiPolicy
from ragen_trl.policies.model_support import check_model
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm import VLLMPolicy
from ragen_trl.policies.vllm_engines import ColocatedEngine
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.interfaces import Policy

# What a saved model answers with. ``training_args.bin`` is none of it, and play.json is among the settings.
_FILES = ("*.safetensors", "pytorch_model*.bin", "*config.json", "tokenizer.json", "tokenizer.model", "*.jinja")


class PlayerError(UserError, ValueError):
    """A model cannot play what it was asked to."""


class Player(Protocol):
    """One row of the table.

    Attributes:
        name: What the row is called.
        baseline: Whether it is one, which environments may lack.
    """

    name: str
    baseline: bool

    def settings(self, args: StarPOConfig) -> dict[str, Any]:
        """What its replies depend on."""

    def check(self, task: Task) -> None:
        """Raise `PlayerError` if it cannot even begin there."""

    def policy(self, task: Task) -> Policy | str:
        """Itself, ready to play."""

    def close(self) -> None:
        """It has played everything."""


class Baseline:
    """The random policy or the oracle."""

    baseline = True

    def __init__(self, name: str) -> None:
        self.name = name

    def settings(self, args: StarPOConfig) -> dict[str, Any]:
        """Everything is the task's."""
        return {}

    def check(self, task: Task) -> None:
        """Whether there is one shows at the first action."""

    def policy(self, task: Task) -> str:
        """Its name, which `ragen_trl.evaluate` knows."""
        return self.name

    def close(self) -> None:
        """Nothing to give back."""


class Remote:
    """A model behind an API; `policy` is the same one for all environments, whose counts go on."""

    baseline = False

    def __init__(self, name: str, policy: ApiPolicy) -> None:
        self.name = name
        self.api = policy

    def settings(self, args: StarPOConfig) -> dict[str, Any]:
        """The endpoint and what it is asked for."""
        manner = {name: getattr(args, name) for name in MANNER}
        return {"backend": "api", "endpoint": self.api.endpoint, **_drawn(self.api.sampling), **manner}

    def check(self, task: Task) -> None:
        """Only the server knows its limits."""

    def policy(self, task: Task) -> ApiPolicy:
        """The policy."""
        return self.api

    def close(self) -> None:
        """Close the connections and the cache."""
        self.api.close()


class LocalModel:
    """A model of this machine.

    Args:
        name: Folder or hub id.
        args: Device, precision, sampling, vLLM.
        temperature: 0 is greedy.

    Raises:
        ModelNotFoundError: If there is no such model.
    """

    baseline = False

    def __init__(self, name: str, args: StarPOConfig, temperature: float) -> None:
        check_model(name)
        self.name = name
        self._args = args
        self._temperature = temperature
        self._context: int | None = getattr(_config(name).get_text_config(), "max_position_embeddings", None)
        self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(name)
        self._loaded: Callable[[Chat, Sampling, int | None], Policy] | None = None
        self._shut: Callable[[], None] = lambda: None

    def settings(self, args: StarPOConfig) -> dict[str, Any]:
        """The weights, how they are spoken to, and how tokens are drawn."""
        backend = {"backend": "vllm"} if self._args.use_vllm else {"backend": "transformers", "bf16": bool(args.bf16)}
        manner = {name: getattr(args, name) for name in MANNER}
        return {"model": fingerprint(self.name), **backend, **_drawn(self._sampling(args)), **manner}

    def check(self, task: Task) -> None:
        """Whether the first message of its first episode leaves room for a reply."""
        turns = make_turns(task.spec.env, task.args[self.name], task.spec.kwargs)
        message = turns.reset(seed=0)[0]
        length = len(make_chat(self._tokenizer, turns, task.args[self.name]).start(message))
        turns.close()
        limits = [known for known in (self._context, self._args.vllm_max_model_length) if known is not None]
        if limits and length >= min(limits):
            raise PlayerError(
                f"{self.name} cannot play {task.name}: the first message has {length} of its tokens and it reads "
                f"{min(limits)}; leave this environment out, or take a model with a longer context (a tokenizer that "
                "was made for another environment, as the embedded one's, spells unknown words in many tokens)"
            )

    def policy(self, task: Task) -> Policy:
        """A policy for one environment; the weights are loaded once."""
        args = task.args[self.name]
        turns = make_turns(task.spec.env, args, task.spec.kwargs)
        chat = make_chat(self._tokenizer, turns, args)
        turns.close()
        if self._loaded is None:
            self._loaded = self._start_vllm() if self._args.use_vllm else self._load()
        return self._loaded(chat, self._sampling(args), args.max_completion_length)

    def close(self) -> None:
        """Drop the weights."""
        self._shut()
        self._loaded = None
        gc.collect()

    def _sampling(self, args: StarPOConfig) -> Sampling:
        return Sampling(args.max_reply_length, self._temperature, args.top_k, args.top_p, args.stop_at_answer)

    def _load(self) -> Callable[[Chat, Sampling, int | None], Policy]:
        device = self._args.device
        model = AutoModelForCausalLM.from_pretrained(self.name, dtype="float32").to(device)  # as it was trained
        precision = partial(torch.autocast, device.type, torch.bfloat16, enabled=bool(self._args.bf16))
        return lambda chat, sampling, length: TransformersPolicy(model, chat, sampling, precision)

    def _start_vllm(self) -> Callable[[Chat, Sampling, int | None], Policy]:
        from vllm import LLM, SamplingParams  # type: ignore[import-not-found]  # only there if asked for

        args = self._args
        with tempfile.TemporaryDirectory() as folder:
            llm = LLM(
                model=self._merged(Path(folder)),
                dtype="bfloat16" if args.bf16 else "float32",  # as Transformers would compute here
                tensor_parallel_size=args.vllm_tensor_parallel_size,
                gpu_memory_utilization=args.vllm_gpu_memory_utilization,
                max_model_len=args.vllm_max_model_length,
                model_impl=args.vllm_model_impl,
                seed=args.seed,
                logprobs_mode="processed_logprobs",
            )
        self._shut = llm.llm_engine.engine_core.shutdown
        engine, summary = ColocatedEngine(llm, SamplingParams), _outline(self.name)
        return lambda chat, sampling, length: VLLMPolicy(engine, summary, chat, sampling, length)

    def _merged(self, folder: Path) -> str:
        """The model's path; of an adapter, a folder with what it makes of its base."""
        if not (Path(self.name).expanduser() / "adapter_config.json").is_file():
            return self.name
        from peft import AutoPeftModelForCausalLM

        AutoPeftModelForCausalLM.from_pretrained(self.name, dtype="auto").merge_and_unload().save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)
        return str(folder)


def local_models(names: Sequence[str], args: StarPOConfig, temperature: float) -> list[LocalModel]:
    """The models, after a look at whether they can be played with as asked.

    Raises:
        PlayerError: If vLLM is missing, or is asked for what it is not used for here.
        ModelNotFoundError: If there is no such model.
    """
    if args.use_vllm:
        from trl.import_utils import is_vllm_available

        if not is_vllm_available():
            raise PlayerError("use_vllm is True, but vLLM is not installed; pip install -e '.[vllm]', or leave it out")
        if args.vllm_mode != "colocate":
            raise PlayerError(
                f"vllm_mode is {args.vllm_mode!r}, which is for training; a vLLM server is evaluated by "
                "--api_model NAME --api_base http://HOST:8000/v1, or give --vllm_mode colocate"
            )
        if len(names) != 1:
            raise PlayerError(f"use_vllm is True with {len(names)} models; give one --model a command, or leave it out")
    return [LocalModel(name, args, temperature) for name in names]


def fingerprint(name: str) -> str:
    """What tells a model from another one under the same name: its files' SHA-256, or the hub's commit."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return f"{name}@{getattr(_config(name), '_commit_hash', None)}"
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _FILES for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    base = _base(name)
    return digest.hexdigest() + ("" if base is None else f" on {fingerprint(base)}")


def _base(name: str) -> str | None:
    """The model that an adapter belongs to, ``None`` for a model of its own."""
    path = Path(name).expanduser() / "adapter_config.json"
    return str(json.loads(path.read_text(encoding="utf-8"))["base_model_name_or_path"]) if path.is_file() else None


def _config(name: str) -> Any:
    return AutoConfig.from_pretrained(str(Path(_base(name) or name).expanduser()))


def _outline(name: str) -> Any:
    """The model without its weights: vLLM has them, and the policy asks for limits and stop tokens only."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(_config(name))
    source = str(Path(_base(name) or name).expanduser())
    try:
        model.generation_config = GenerationConfig.from_pretrained(source)
    except OSError:  # the model names no stop tokens of its own
        pass
    return model


def _drawn(sampling: Sampling) -> dict[str, Any]:
    return {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
