"""The policies of an evaluation: baselines, models sampled by Transformers or vLLM, and a model behind an API.

A model is loaded when its turn comes and freed after it. Whether it can play at all is checked before, by the tokens of
the first message of every environment. LoRA weights are merged into a temporary folder for vLLM. Relies on vLLM's
``LLM``; pinned in ``tests/vllm``.
"""

import gc
import hashlib
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedTokenizerBase,
)

from ragen_envs import AgentTurns
from ragen_trl.config.options import MANNER, ApiArguments, TokenOptions, option_names
from ragen_trl.config.recipes import base_model
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError, UserError
from ragen_trl.evaluation.plan import EvalPlan, Task, api_name
from ragen_trl.policies.api import ApiCache, ApiPolicy
from ragen_trl.policies.api_client import ApiClient, Prices
from ragen_trl.policies.gguf_file import model_folder
from ragen_trl.policies.models import FAMILIES, check_model, check_sees, commit_of, context_length, is_adapter
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vision import PictureProcessor, local_policy, picture_processor
from ragen_trl.policies.vllm import ColocatedEngine, VLLMPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.episode import Outcome, tools_of
from ragen_trl.rollout.interfaces import Policy

# Files that decide what a saved model answers. ``training_args.bin`` does not, and play.json is among the settings.
_FILES = ("*.safetensors", "pytorch_model*.bin", "*config.json", "tokenizer.json", "tokenizer.model", "*.jinja")


class PlayerError(UserError, ValueError):
    """A model cannot play an environment, because its first message leaves no room for a reply."""


class Player:
    """One row of the table, named ``name``. A derived class overrides what it has."""

    def __init__(self, name: str) -> None:
        self.name = name

    def settings(self, args: StarPOConfig) -> dict[str, Any]:
        """The settings that its replies depend on, beside the task."""
        return {}

    def check(self, task: Task) -> None:
        """Raise `PlayerError` if it is known in advance that it cannot begin the task."""

    def policy(self, task: Task) -> Policy | str:
        """A policy that is ready to play, or the name of a baseline."""
        return self.name

    def close(self) -> None:
        """Free what it holds; it has played everything."""


class Baseline(Player):
    """The random policy or the oracle. If an environment has none, that shows at the first action."""


class Remote(Player):
    """A model behind an API. All environments are played by one policy, whose counts add up."""

    def __init__(self, name: str, policy: ApiPolicy) -> None:
        super().__init__(name)
        self.api = policy

    def settings(self, args: StarPOConfig) -> dict[str, Any]:
        """The endpoint, and how the model is sampled and spoken to."""
        return {"backend": "api", "endpoint": self.api.endpoint, **_spoken_settings(self.api.sampling, args)}

    def policy(self, task: Task) -> ApiPolicy:
        """The policy."""
        return self.api

    def close(self) -> None:
        """Close the connections and the cache."""
        self.api.close()


_Starts = Callable[[Chat, Sampling, int | None, PictureProcessor | None], Policy]


class LocalModel(Player):
    """A model on this machine: a folder, hub id or GGUF file, whose conversion ``say`` is told of.

    Raises:
        ModelNotFoundError: If there is no such model.
        GGUFError: If the GGUF file cannot be converted.
    """

    def __init__(self, name: str, args: StarPOConfig, temperature: float, say: Callable[[str], None]) -> None:
        self._config = config = check_model(name)
        super().__init__(name)
        self._args = args
        self._temperature = temperature
        self._source = model_folder(name, say)
        self._context: int | None = context_length(config)
        self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(self._source)
        self._loaded: _Starts | None = None
        self._shut: Callable[[], None] = lambda: None

    def settings(self, args: StarPOConfig) -> dict[str, Any]:
        """The weights, and how the model is sampled and spoken to."""
        given = {name: True for name in ("fp16", "merge_lora") if getattr(args, name)}
        here = {"backend": "transformers", "bf16": bool(args.bf16), **given}
        backend = {"backend": "vllm"} if self._args.use_vllm else here
        return {"model": fingerprint(self._source), **backend, **_spoken_settings(self._sampling(args), args)}

    def check(self, task: Task) -> None:
        """Raise `PlayerError` if the first message of its first episode leaves no room for a reply."""
        if task.args[self.name].observation == "image":
            check_sees(self._config)
        turns, chat, _ = self._spoken_to(task)
        shown = Outcome.of(*turns.reset(seed=0))
        length = len(chat.start(shown.observation, tools_of(turns), shown.pictures))
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
        turns, chat, pictures = self._spoken_to(task)
        turns.close()
        if self._loaded is None:
            self._loaded = self._start_vllm() if self._args.use_vllm else self._load()
        return self._loaded(chat, self._sampling(args), args.max_completion_length, pictures)

    def _spoken_to(self, task: Task) -> tuple[AgentTurns, Chat, PictureProcessor | None]:
        args = task.args[self.name]
        turns = make_turns(task.spec.env, args, task.spec.kwargs)
        pictures, _ = picture_processor(self._source, args, self._tokenizer)
        return turns, make_chat(self._tokenizer, turns, args, None if pictures is None else pictures.text), pictures

    def close(self) -> None:
        """Free the weights."""
        self._shut()
        self._loaded = None
        gc.collect()

    def _sampling(self, args: StarPOConfig) -> Sampling:
        return Sampling(args.max_reply_length, self._temperature, args.top_k, args.top_p, args.stop_at_answer)

    def _load(self) -> _Starts:
        device = self._args.device
        sees = self._config.model_type in FAMILIES
        kind = AutoModelForImageTextToText if sees else AutoModelForCausalLM
        model = kind.from_pretrained(self._source, dtype="float32").to(device)  # as in training
        args = self._args
        half = torch.float16 if args.fp16 else torch.bfloat16
        precision = partial(torch.autocast, device.type, half, enabled=bool(args.bf16 or args.fp16))
        return lambda chat, sampling, length, pictures: local_policy(
            model, chat, sampling, precision, pictures, args.merge_lora
        )

    def _start_vllm(self) -> _Starts:
        from vllm import LLM, SamplingParams  # type: ignore[import-not-found]  # an optional dependency

        args = self._args
        with tempfile.TemporaryDirectory() as folder:
            llm = LLM(
                model=self._merged(Path(folder)),
                # As Transformers would compute it here.
                dtype="bfloat16" if args.bf16 else "float16" if args.fp16 else "float32",
                tensor_parallel_size=args.vllm_tensor_parallel_size,
                gpu_memory_utilization=args.vllm_gpu_memory_utilization,
                max_model_len=args.vllm_max_model_length,
                model_impl=args.vllm_model_impl,
                seed=args.seed,
                logprobs_mode="processed_logprobs",
            )
        self._shut = llm.llm_engine.engine_core.shutdown
        engine, summary = ColocatedEngine(llm, SamplingParams), _without_weights(self._source)
        return lambda chat, sampling, length, pictures: VLLMPolicy(engine, summary, chat, sampling)

    def _merged(self, folder: Path) -> str:
        """The model's path; for an adapter, a folder with the base model it is merged into."""
        if not is_adapter(self._source):
            return self._source
        from peft import AutoPeftModelForCausalLM

        AutoPeftModelForCausalLM.from_pretrained(self._source, dtype="auto").merge_and_unload().save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)
        return str(folder)


def check_engine(plan: EvalPlan) -> None:
    """Raise `OptionError` if vLLM is missing, or the options ask for a use of it that evaluation does not have."""
    names, args = plan.run.model, plan.common
    if args.use_vllm:
        from trl.import_utils import is_vllm_available

        if not is_vllm_available():
            raise OptionError("use_vllm is True, but vLLM is not installed; pip install -e '.[vllm]', or leave it out")
        if args.vllm_mode != "colocate":
            raise OptionError(
                f"vllm_mode is {args.vllm_mode!r}, which is for training; a vLLM server is evaluated by "
                "--api_model NAME --api_base http://HOST:8000/v1, or give --vllm_mode colocate"
            )
        if len(names) != 1:
            raise OptionError(f"use_vllm is True with {len(names)} models; give one --model a command, or leave it out")


def local_models(plan: EvalPlan, say: Callable[[str], None]) -> list[LocalModel]:
    """The models, checked to be sampled as the options say; errors of `check_engine` and `LocalModel`."""
    check_engine(plan)
    return [LocalModel(name, plan.tasks[0].args[name], plan.run.eval_temperature, say) for name in plan.run.model]


def api_client(plan: EvalPlan) -> ApiClient | None:
    """The connection to the API, or ``None`` if there is no model behind one. Nothing is sent yet.

    Raises `OptionError` if options contradict each other, or ask for what no API can do.
    """
    api, name = plan.api, api_name(plan.api)
    if name is None:
        for option, default in asdict(ApiArguments()).items():
            if getattr(api, option) != default:
                raise OptionError(f"{option} is {getattr(api, option)!r}, but there is no api_model; name one")
        return None
    args = plan.tasks[0].args[name]
    for option in option_names(TokenOptions):
        if getattr(args, option) != getattr(TokenOptions, option):
            raise OptionError(f"{option} is {getattr(args, option)}, which an API is not asked for; leave it out")
    prices = (api.api_prompt_price, api.api_completion_price)
    if (prices[0] is None) != (prices[1] is None):
        raise OptionError(f"api_prompt_price and api_completion_price are {prices}; give both, or none")
    return ApiClient(
        api.api_base,
        concurrency=api.api_concurrency,
        retries=api.api_retries,
        timeout=api.api_timeout,
        prices=None if prices[0] is None or prices[1] is None else Prices(prices[0], prices[1]),
    )


def remote_player(plan: EvalPlan) -> Remote | None:
    """The model behind an API, or ``None`` if there is none; errors as in `api_client`."""
    client, api, name = api_client(plan), plan.api, api_name(plan.api)
    if client is None or api.api_model is None or name is None:
        return None
    args = plan.tasks[0].args[name]
    policy = ApiPolicy(
        api.api_model,
        Sampling(args.max_reply_length, plan.run.eval_temperature, args.top_k, args.top_p),
        client,
        cache=ApiCache(api.api_cache or str(plan.folder / "api_cache.sqlite")),
        system_prompt=args.system_prompt,
        leave_out=api.api_leave_out,
        token_limit=api.api_token_limit,
    )
    return Remote(name, policy)


def fingerprint(name: str) -> str:
    """Identifies the weights behind a name: the SHA-256 of a folder's files, or the hub's commit."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        return f"{name}@{commit_of(name)}"
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _FILES for path in folder.glob(pattern)}):
        with path.open("rb") as file:
            digest.update(f"{path.name} {hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
    base = base_model(name)
    return digest.hexdigest() + ("" if base is None else f" on {fingerprint(base)}")


def _without_weights(name: str) -> Any:
    """The model without its weights, which vLLM holds; the policy needs only its limits and stop tokens."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(check_model(name))
    source = str(Path(base_model(name) or name).expanduser())
    try:
        model.generation_config = GenerationConfig.from_pretrained(source)
    except OSError:  # the model has no stop tokens of its own
        pass
    return model


def _spoken_settings(sampling: Sampling, args: StarPOConfig) -> dict[str, Any]:
    """How a model is sampled and spoken to; the options of pictures only where they are set."""
    sampled = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
    values = {name: getattr(args, name) for name in MANNER}
    unset = {name for name in ("observation", "image_size") if values[name] == getattr(StarPOConfig, name)}
    return {**sampled, **{name: value for name, value in values.items() if name not in unset}}
