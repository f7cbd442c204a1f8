"""Compares saved models, a model behind an API, the random policy and the oracle: ``python -m ragen_trl eval``.

Finished episodes and answers of an API are kept in the output folder, so the same command goes on where it was stopped,
and more episodes, samples or models can be added later. Episodes that an API or an environment ended are left out of
every rate and played again by the next command. A policy that cannot play gets a row that says why. A model is loaded
when its turn comes and freed after it. A vLLM server is an API like any other.
"""

import gc
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import try_to_load_from_cache
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoTokenizer
from transformers.utils import CONFIG_NAME
from transformers.utils.hub import extract_commit_hash

from ragen_envs import EnvError, NoOracleError
from ragen_trl.config.options import LIMITS, MANNER, ApiArguments, EvaluationArguments, TokenOptions, option_names
from ragen_trl.config.recipes import base_model
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import REPEAT, DiskError, OptionError, UserError
from ragen_trl.evaluation.evaluator import held_out_starts, judged, with_differences
from ragen_trl.evaluation.folder import EpisodeFile, Starts, episodes_path
from ragen_trl.policies.api import ApiError, ApiPolicy
from ragen_trl.policies.models import FAMILIES, check_model, check_sees, load_model
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vision import local_policy, picture_processor
from ragen_trl.rollout.environments import EnvSpec, about, make_chat, make_turns
from ragen_trl.rollout.episode import FAILED
from ragen_trl.rollout.interfaces import Policy
from ragen_trl.system.atomic import write_atomically
from ragen_trl.system.progress import progress_bar
from ragen_trl.system.provenance import provenance

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


def run_eval(plan: EvalPlan, say: Callable[[str], None]) -> dict[str, Any]:
    """Evaluate, and write ``summary.json``, which is returned, and ``episodes/`` to the plan's folder.

    Raises `ApiError` if the API answers nothing. After Ctrl-C the message of ``KeyboardInterrupt`` says how to go on.
    """
    starts = held_out_starts(plan.run.episodes, plan.run.samples_per_start)
    models, asked = [local_player(name, plan) for name in plan.run.model], None
    if (name := api_name(plan.api)) is not None:
        asked = _api_policy(plan)
        settings = {"endpoint": asked.endpoint, **_spoken_settings(asked.sampling, plan.args[name])}
        models.append(Player(name, lambda: asked, settings))
    players = [Player("random", lambda: "random"), *models, Player("oracle", lambda: "oracle")]
    if (plan.folder / "stages.json").exists():
        raise OptionError(f"{plan.folder} holds a training run; choose another --output_dir")
    files: dict[str, EpisodeFile] = {}
    for player in players:
        path = episodes_path(plan.folder, player.name, plan.spec.name, {**plan.task(), "policy": player.settings})
        files[player.name] = EpisodeFile(path, player.name, plan.spec.name)
    total = len(starts) * len(files)
    there = total - sum(len(file.missing(starts)) for file in files.values())
    if there:
        say(f"{there} of {total} episodes are there already, in {plan.folder}")
    results: dict[str, dict[str, Any]] = {}
    with progress_bar(total, "evaluate", "episode", initial=there) as bar:
        try:
            for player in players:
                bar.set_description_str(player.name)
                results[player.name], words = _played(player, plan, files[player.name], starts, bar)
                gc.collect()  # a model is freed before the next one is loaded
                bar.clear()
                say(f"{player.name}: {words}")
        except KeyboardInterrupt:
            kept = f"{bar.n} of {total} episodes are kept in {plan.folder}"
            raise KeyboardInterrupt(f"Stopped. {kept}. {REPEAT}") from None
        finally:
            if asked:
                counted = [f"{count} {name.replace('_', ' ')}" for name, count in asked.counts.items()]
                say(f"API: {', '.join(counted)}")
                asked.close()
    rows = {name: files[name].of(starts) for name, found in results.items() if "not_played" not in found}
    for name in [model.name for model in models if model.name in rows]:
        with_differences(results, rows, name, "random", models[0].name)
    summary = {
        **provenance(),
        **plan.task(),
        "environment": about(plan.spec.env, plan.args["random"], plan.spec.kwargs),
        "episodes": plan.run.episodes,
        "samples_per_start": plan.run.samples_per_start,
        "policies": {player.name: dict(player.settings) for player in players},
        "results": results,
    }
    if asked:
        summary["api"] = {"endpoint": asked.endpoint, **asked.counts}
    write_atomically(plan.folder / "summary.json", json.dumps(summary, indent=2))
    return summary


def _played(player: Player, plan: EvalPlan, file: EpisodeFile, starts: Starts, bar: Any) -> tuple[dict[str, Any], str]:
    """The result of a policy, and the same in words; missing episodes are played first.

    A policy that cannot play has the result ``{"not_played": reason, "failed": …}``. It is no failure if an environment
    lacks a baseline.
    """
    try:
        if file.missing(starts):
            file.play(player.policy(), plan.spec, plan.args.get(player.name, plan.args["random"]), starts, bar)
        rows = file.of(starts)
        result = judged(rows)
    except (ApiError, DiskError):
        raise  # not the environment's fault: this model, or none, can play on
    except (UserError, EnvError) as error:  # also of an oracle that cannot see the goal, as it is on a server
        reason = f"no {player.name} policy: {error}" if isinstance(error, NoOracleError) else str(error)
        lacking = isinstance(error, EnvError) and not player.settings
        return {"not_played": reason, "failed": not lacking}, f"not played: {reason}"
    counted = {
        "limits": Counter(row["limit"] or "none" for row in rows if row["limit"] not in FAILED),
        "failures": Counter(row["error"] for row in rows if row["limit"] in FAILED),
    }
    found = {**asdict(result), **{name: dict(counts.most_common(10)) for name, counts in counted.items()}}
    failures = [f"\n  {count} x {reason}" for reason, count in counted["failures"].most_common(3)]
    return found, result.in_words() + "".join(failures)


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


def _api_policy(plan: EvalPlan) -> ApiPolicy:
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
