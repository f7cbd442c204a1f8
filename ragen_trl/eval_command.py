"""``python -m ragen_trl eval``: a saved model, a model behind an API, the random policy and the oracle, side by side.

Episodes that ended because the API failed say nothing about the model: they are left out of every rate and counted
apart. An answer of the server is kept in the output folder, so that a repeated command pays for nothing twice.
"""

import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_trl.api_answer import ApiOptionError
from ragen_trl.api_cache import ApiCache
from ragen_trl.api_client import ApiClient
from ragen_trl.api_counts import Prices
from ragen_trl.api_policy import ApiPolicy
from ragen_trl.atomic import write_atomically
from ragen_trl.config import StarPOConfig
from ragen_trl.environments import about, make_chat, make_turns
from ragen_trl.episodes import FAILED
from ragen_trl.evaluation import EvaluationError, evaluate, judged, play_held_out
from ragen_trl.experiment import EvalArguments
from ragen_trl.model_loading import check_model
from ragen_trl.policies import TransformersPolicy
from ragen_trl.provenance import provenance
from ragen_trl.sampling import Sampling

Say = Callable[[str], None]


@dataclass
class ApiArguments:
    """Which model behind an OpenAI-compatible server is evaluated. The key comes from OPENAI_API_KEY only."""

    api_model: str | None = field(default=None, metadata={"help": "Name of a model at an OpenAI-compatible server."})
    api_base: str | None = field(default=None, metadata={"help": "Its base URL; unset: OPENAI_BASE_URL."})
    api_cache: str | None = field(
        default=None, metadata={"help": "File that keeps its answers; unset: api_cache.sqlite in the output folder."}
    )
    api_concurrency: int = field(default=16, metadata={"help": "Requests on the way at a time."})
    api_timeout: float = field(default=120.0, metadata={"help": "Seconds that an attempt waits for an answer."})
    api_retries: int = field(default=6, metadata={"help": "Repetitions of a request after 429, 5xx and timeouts."})
    api_leave_out: list[str] = field(
        default_factory=list, metadata={"help": "Fields that the server refuses, of seed, temperature, top_p."}
    )
    api_token_limit: str = field(
        default="max_tokens", metadata={"help": "'max_tokens', or 'max_completion_tokens' for reasoning models."}
    )
    api_prompt_price: float | None = field(default=None, metadata={"help": "Price of a million tokens sent."})
    api_completion_price: float | None = field(default=None, metadata={"help": "Price of a million tokens written."})


def run_eval(run: EvalArguments, api: ApiArguments, args: StarPOConfig, say: Say) -> dict[str, Any]:
    """Evaluate and, if there is an output folder, write ``summary.json`` to it.

    Args:
        run: Environment, local model, number of episodes.
        api: The model behind an API, if any.
        args: Limits of turns and tokens; ``output_dir`` may be empty.
        say: Takes lines about what came out.

    Returns:
        Results by name of the policy.

    Raises:
        ApiError: If the API answers nothing.
        EvaluationError: If no episode could be played to its end.
        ApiOptionError: If an option of the API cannot be used.
    """
    if args.use_vllm:
        raise EvaluationError("use_vllm is True, but here a model is sampled by Transformers or an API; leave it out")
    remote = _api_policy(run, api, args, say)  # mistakes show before anything is played
    local = _local_policy(run.model, run, args) if run.model is not None else None
    results = {"random": _measured("random", "random", run, args, say)}
    if run.model is not None and local is not None:
        results[run.model] = _measured(run.model, local, run, args, say)
    if remote is not None:
        try:
            results[f"{remote.model} (API)"] = _measured_remotely(remote, run, args, say)
        finally:
            say(f"API: {remote.counts.in_words()}")
            remote.close()
    results["oracle"] = _measured("oracle", "oracle", run, args, say)
    if args.output_dir:
        target = Path(args.output_dir) / "summary.json"
        summary = {**provenance(), "env": run.env, "environment": about(run.env, args), "results": results}
        write_atomically(target, json.dumps(summary, indent=2))
        say(f"summary: {target}")
    return results


def _measured(
    name: str, policy: TransformersPolicy | str, run: EvalArguments, args: StarPOConfig, say: Say
) -> dict[str, Any]:
    found = evaluate(policy, run.env, args, run.eval_episodes, progress=True)
    say(f"{name}: {found.in_words()}")
    return found.as_dict()


def _local_policy(name: str, run: EvalArguments, args: StarPOConfig) -> TransformersPolicy:
    check_model(name)
    model = AutoModelForCausalLM.from_pretrained(name, dtype="float32").to(args.device)  # as it was trained
    chat = make_chat(AutoTokenizer.from_pretrained(name), make_turns(run.env, args), args)
    precision = partial(torch.autocast, args.device.type, torch.bfloat16, enabled=bool(args.bf16))
    limit = args.max_reply_length
    sampling = Sampling(limit, run.eval_temperature, args.top_k, args.top_p, args.stop_at_answer)
    return TransformersPolicy(model, chat, sampling, precision)


def _api_policy(run: EvalArguments, api: ApiArguments, args: StarPOConfig, say: Say) -> ApiPolicy | None:
    if api.api_model is None:
        for name, default in asdict(ApiArguments()).items():
            if getattr(api, name) != default:
                raise ApiOptionError(f"{name} is {getattr(api, name)!r}, but there is no api_model; name one")
        return None
    for name in ("stop_at_answer", "window_turns"):
        if getattr(args, name):
            raise ApiOptionError(f"{name} is {getattr(args, name)}, which an API is not asked for; leave it out")
    prices = (api.api_prompt_price, api.api_completion_price)
    if (prices[0] is None) != (prices[1] is None):
        raise ApiOptionError(f"api_prompt_price and api_completion_price are {prices}; give both, or none")
    client = ApiClient(
        api.api_base,
        concurrency=api.api_concurrency,
        retries=api.api_retries,
        timeout=api.api_timeout,
        prices=None if prices[0] is None or prices[1] is None else Prices(prices[0], prices[1]),
    )
    path = api.api_cache or (str(Path(args.output_dir) / "api_cache.sqlite") if args.output_dir else None)
    if path is None:
        say("answers of the API are not kept; --output_dir, or --api_cache, lets a stopped evaluation go on")
    return ApiPolicy(
        api.api_model,
        Sampling(args.max_reply_length, run.eval_temperature, args.top_k, args.top_p),
        client,
        cache=None if path is None else ApiCache(path),
        system_prompt=args.system_prompt,
        leave_out=api.api_leave_out,
        token_limit=api.api_token_limit,
    )


def _measured_remotely(policy: ApiPolicy, run: EvalArguments, args: StarPOConfig, say: Say) -> dict[str, Any]:
    """The usual result over the episodes that the API let come to an end, the failures and the counts."""
    began = time.perf_counter()
    played = play_held_out(policy, run.env, args, run.eval_episodes, progress=True)
    found = judged(played, began)
    reasons = Counter(str(row.turns[-1].info["error"]) for row in played if row.limit in FAILED)
    say(f"{policy.model} (API): {found.in_words()}")
    for reason, count in reasons.most_common(3):
        say(f"  {count} x {reason}")
    return {
        **found.as_dict(),
        "failures": dict(reasons.most_common(10)),
        "api": {"endpoint": policy.endpoint, **policy.counts.as_dict()},
    }
