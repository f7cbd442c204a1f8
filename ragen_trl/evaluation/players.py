"""What an evaluation plays, and who plays it: baselines, models sampled by Transformers, and a model behind an API.

A model is loaded when its turn comes and freed after it. A vLLM server is an API like any other.
"""

import hashlib
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer
from transformers.utils import CONFIG_NAME
from transformers.utils.hub import extract_commit_hash

from ragen_trl.config.options import LIMITS, MANNER, ApiArguments, EvaluationArguments, TokenOptions, option_names
from ragen_trl.config.recipes import base_model
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.policies.api import ApiPolicy
from ragen_trl.policies.models import FAMILIES, check_model, check_sees, load_model
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vision import local_policy, picture_processor
from ragen_trl.rollout.environments import EnvSpec, make_chat, make_turns
from ragen_trl.rollout.interfaces import Policy

# Files that decide what a saved model answers. ``training_args.bin`` does not, and play.json is among the settings.
_FILES = ("*.safetensors", "pytorch_model*.bin", "*config.json", "tokenizer.json", "tokenizer.model", "*.jinja")


@dataclass(frozen=True)
class EvalPlan:
    """What is evaluated (``run``), the model behind an API if any, the environment, and where the results go.

    ``args`` has the whole configuration under which each policy plays. The task is the same for all of them.
    """

    run: EvaluationArguments
    api: ApiArguments
    spec: EnvSpec
    args: Mapping[str, StarPOConfig]
    folder: Path

    def task(self) -> dict[str, Any]:
        """What an episode depends on besides its policy and its seeds."""
        limits = {name: getattr(self.args["random"], name) for name in LIMITS}
        return {"env": self.spec.label, "env_kwargs": dict(self.spec.kwargs), **limits}


class Player(NamedTuple):
    """One row of the table: ``policy`` makes what plays, or names a baseline.

    ``settings`` are what a model's replies depend on beside the task; empty for the random policy and the oracle.
    """

    name: str
    policy: Callable[[], Policy | str]
    settings: Mapping[str, Any] = {}


def local_player(name: str, plan: EvalPlan) -> Player:
    """A model of this machine, a folder or a hub id; its weights are held as long as its policy.

    Raises `UserError` if it cannot play.
    """
    args, config = plan.args[name], check_model(name)
    if args.observation == "image":
        check_sees(config)
    sampling = Sampling.of(args, plan.run.eval_temperature)

    def policy() -> Policy:
        tokenizer = AutoTokenizer.from_pretrained(name)
        pictures, _ = picture_processor(name, args, tokenizer)
        with closing(make_turns(plan.spec.env, args, plan.spec.kwargs)) as turns:
            chat = make_chat(tokenizer, turns, args, None if pictures is None else pictures.text)
        kind = AutoModelForImageTextToText if config.model_type in FAMILIES else AutoModelForCausalLM
        model = load_model(name, kind).to(args.device)
        half = torch.float16 if args.fp16 else torch.bfloat16
        precision = partial(torch.autocast, args.device.type, half, enabled=bool(args.bf16 or args.fp16))
        return local_policy(model, chat, sampling, precision, pictures, args.merge_lora)

    here = {"bf16": args.bf16, "fp16": args.fp16, "merge_lora": args.merge_lora}
    return Player(name, policy, {"model": fingerprint(name), **here, **_spoken_settings(sampling, args)})


def api_name(api: ApiArguments) -> str | None:
    """The name in tables of the model behind the API; ``None`` if there is none."""
    return None if api.api_model is None else f"{api.api_model} (API)"


def api_policy(plan: EvalPlan) -> ApiPolicy:
    """The policy that asks the model behind the API; `OptionError` for options that no API can honour."""
    api, args = plan.api, plan.args[str(api_name(plan.api))]
    for option in option_names(TokenOptions):
        if getattr(args, option) != getattr(TokenOptions, option):
            raise OptionError(f"{option} is {getattr(args, option)}, which an API is not asked for; leave it out")
    return ApiPolicy(
        str(api.api_model),
        Sampling.of(args, plan.run.eval_temperature),
        api.api_base,
        cache=api.api_cache or plan.folder / "api_cache.sqlite",
        system_prompt=args.system_prompt,
        leave_out=api.api_leave_out,
        token_limit=api.api_token_limit,
        concurrency=api.api_concurrency,
        retries=api.api_retries,
        timeout=api.api_timeout,
    )


def api_player(asked: ApiPolicy, plan: EvalPlan) -> Player:
    """The model behind the API that this policy asks."""
    name = str(api_name(plan.api))
    settings = {"endpoint": asked.endpoint, **_spoken_settings(asked.sampling, plan.args[name])}
    return Player(name, lambda: asked, settings)


def fingerprint(name: str) -> str:
    """Identifies the weights behind a name: the SHA-256 of a folder's files, or the hub's commit."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        found = try_to_load_from_cache(name, CONFIG_NAME)
        return f"{name}@{extract_commit_hash(found if isinstance(found, str) else None, None)}"
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
