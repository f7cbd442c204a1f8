"""The policies of an evaluation: baselines, models sampled by Transformers, and a model behind an API.

A model is loaded when its turn comes and freed after it. A vLLM server is an API like any other.
"""

import gc
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ragen_trl.config.options import MANNER, TokenOptions, option_names
from ragen_trl.config.recipes import base_model
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.plan import EvalPlan, Task, api_name
from ragen_trl.policies.api import ApiCache, ApiPolicy
from ragen_trl.policies.api_client import ApiClient
from ragen_trl.policies.models import FAMILIES, check_model, check_sees, commit_of
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vision import local_policy, picture_processor
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.interfaces import Policy

# Files that decide what a saved model answers. ``training_args.bin`` does not, and play.json is among the settings.
_FILES = ("*.safetensors", "pytorch_model*.bin", "*config.json", "tokenizer.json", "tokenizer.model", "*.jinja")


@dataclass(frozen=True)
class Player:
    """One row of the table.

    Attributes:
        name: Its name.
        policy: A policy that is ready to play a task, or the name of a baseline. If an environment has no oracle or no
            random play, that shows at the first action.
        settings: What its replies depend on, beside the task.
        close: Frees what it holds, when it has played everything.
    """

    name: str
    policy: Callable[[Task], Policy | str]
    settings: Mapping[str, Any] = field(default_factory=dict)
    close: Callable[[], None] = lambda: None


def baseline(name: str) -> Player:
    """The ``"random"`` policy or the ``"oracle"``."""
    return Player(name, lambda task: name)


def local_models(plan: EvalPlan) -> list[Player]:
    """The models of this machine: folders or hub ids.

    Raises:
        OptionError: If vLLM is to sample them.
        ModelNotFoundError: If there is no such model.
        UnsupportedModelError: If a model that does not see is to play on pictures.
    """
    if plan.tasks[0].args["random"].use_vllm:
        raise OptionError(
            "use_vllm is True, which is for training; to evaluate with vLLM start 'vllm serve MODEL', and give "
            "--api_model MODEL --api_base http://HOST:8000/v1"
        )
    players = []
    for name in plan.run.model:
        args = plan.tasks[0].args[name]
        model = _LocalModel(name, args, plan.run.eval_temperature)
        players.append(Player(name, model.policy, model.settings(args), model.close))
    return players


class _LocalModel:
    """A model of this machine, loaded for the first task that it plays."""

    def __init__(self, name: str, args: StarPOConfig, temperature: float) -> None:
        self._name, self._temperature = name, temperature
        self._config = check_model(name)
        if args.observation == "image":
            check_sees(self._config)
        self._tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(self._name)
        self._model: PreTrainedModel | None = None

    def settings(self, args: StarPOConfig) -> dict[str, Any]:
        """The weights, and how the model is sampled and spoken to."""
        here = {"backend": "transformers", "bf16": args.bf16, "fp16": args.fp16, "merge_lora": args.merge_lora}
        return {"model": fingerprint(self._name), **here, **_spoken_settings(self._sampling(args), args)}

    def policy(self, task: Task) -> Policy:
        """A policy for one environment; the weights are loaded once."""
        args = task.args[self._name]
        turns = make_turns(task.spec.env, args, task.spec.kwargs)
        pictures, _ = picture_processor(self._name, args, self._tokenizer)
        chat = make_chat(self._tokenizer, turns, args, None if pictures is None else pictures.text)
        turns.close()
        if self._model is None:
            kind = AutoModelForImageTextToText if self._config.model_type in FAMILIES else AutoModelForCausalLM
            self._model = kind.from_pretrained(self._name, dtype="float32").to(args.device)  # as in training
        half = torch.float16 if args.fp16 else torch.bfloat16
        precision = partial(torch.autocast, args.device.type, half, enabled=bool(args.bf16 or args.fp16))
        return local_policy(self._model, chat, self._sampling(args), precision, pictures, args.merge_lora)

    def close(self) -> None:
        """Free the weights."""
        self._model = None
        gc.collect()

    def _sampling(self, args: StarPOConfig) -> Sampling:
        return Sampling(args.max_reply_length, self._temperature, args.top_k, args.top_p, args.stop_at_answer)


def remote_policy(plan: EvalPlan) -> ApiPolicy | None:
    """The model behind an API, or ``None`` if there is none. Nothing is sent yet.

    Raises `OptionError` for options that no API can honour.
    """
    api, name = plan.api, api_name(plan.api)
    if api.api_model is None or name is None:
        return None
    args = plan.tasks[0].args[name]
    for option in option_names(TokenOptions):
        if getattr(args, option) != getattr(TokenOptions, option):
            raise OptionError(f"{option} is {getattr(args, option)}, which an API is not asked for; leave it out")
    client = ApiClient(
        api.api_base,
        concurrency=api.api_concurrency,
        retries=api.api_retries,
        timeout=api.api_timeout,
    )
    return ApiPolicy(
        api.api_model,
        Sampling(args.max_reply_length, plan.run.eval_temperature, args.top_k, args.top_p),
        client,
        cache=ApiCache(api.api_cache or str(plan.folder / "api_cache.sqlite")),
        system_prompt=args.system_prompt,
        leave_out=api.api_leave_out,
        token_limit=api.api_token_limit,
    )


def remote(plan: EvalPlan, policy: ApiPolicy) -> Player:
    """The player of this policy. All environments are played by one policy, whose counts add up."""
    name = str(api_name(plan.api))
    spoken = _spoken_settings(policy.sampling, plan.tasks[0].args[name])
    return Player(name, lambda task: policy, {"backend": "api", "endpoint": policy.endpoint, **spoken}, policy.close)


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


def _spoken_settings(sampling: Sampling, args: StarPOConfig) -> dict[str, Any]:
    """How a model is sampled and spoken to."""
    sampled = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
    return sampled | {name: getattr(args, name) for name in MANNER}
