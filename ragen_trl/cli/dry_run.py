"""What ``train`` would do, for ``--dry-run``; nothing is trained or written."""

from textwrap import indent

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_trl.cli.training_run import evaluated
from ragen_trl.config.options import RunArguments, json_object
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.policies.models import check_model
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.rollout.env_executor import EnvExecutor
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.episode import tools_of
from ragen_trl.rollout.interfaces import Start
from ragen_trl.rollout.loop import begun


def training_plan(run: RunArguments, args: StarPOConfig, options: str) -> str:
    """The plan of ``train``, whose options, which `training_run.check` has passed, are the YAML text ``options``."""
    if run.model is None:
        tokenizer = build_tiny_tokenizer(env=run.env, env_kwargs=json_object("env_kwargs", args.env_kwargs), args=args)
        config = build_tiny_model(tokenizer).config
    else:
        config, tokenizer = check_model(run.model), AutoTokenizer.from_pretrained(run.model)
    with torch.device("meta"):
        count = AutoModelForCausalLM.from_config(config).num_parameters()
    rows = {
        "options": options,
        "run folder": args.output_dir,
        "evaluated in": f"{run.env} {evaluated(run, args).env_kwargs or ''}; 4 · {run.eval_episodes:,} episodes",
        "model": f"{run.model or 'embedded tiny Qwen2'}: {count:,} parameters",
        "trajectories": f"{args.groups_per_generation} start states · {args.num_generations} = "
        f"{args.generation_batch_size} a rollout; {args.num_rollouts:,} rollouts = "
        f"{args.num_rollouts * (args.generation_batch_size or 0):,}",
    }
    prompt = 0
    if args.observation == "text":
        turns = make_turns(run.env, args)
        shown = begun([turns], [Start(0)], EnvExecutor(args.env_workers, args.env_timeout))[0].last
        ids = make_chat(tokenizer, turns, args).start(shown.observation, tools_of(turns), shown.pictures)
        turns.close()
        prompt, rows["first prompt"] = len(ids), str(tokenizer.decode(ids))
    replies, most = args.max_turns * args.max_reply_length, args.max_completion_length or 10**9
    sampled = f"of which {min(replies, most):,} are sampled"
    rows["tokens"] = f"{prompt:,} in the first prompt, then at most {most:,}, {sampled}"
    sections = (f"{label}\n{indent(text, '    ')}" for label, text in rows.items())
    return "\n".join(["Plan of `train`; nothing was trained or written", *sections])
