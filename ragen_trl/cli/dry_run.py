"""What ``train`` would do, for ``--dry-run``, and how much memory it takes; nothing is trained or written."""

import os
from textwrap import indent

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PretrainedConfig

from ragen_trl.cli.training_run import evaluated
from ragen_trl.config.options import CRITIC_ADVANTAGES, RunArguments, json_object
from ragen_trl.config.starpo import AStarPOConfig, StarPOConfig
from ragen_trl.evaluation.evaluator import BATCH_SIZE
from ragen_trl.policies.models import check_model
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.rollout.environments import make_chat, make_turns
from ragen_trl.rollout.episode import Outcome, tools_of
from ragen_trl.system.processes import launched

_HEAD_TOKENS, _HEAD_WORDS = 4096, 32768  # TRL computes the head of a model in tiles


def training_plan(run: RunArguments, args: StarPOConfig, options: str) -> str:
    """The plan of ``train``, whose options, which `training_run.check` has passed, are the YAML text ``options``."""
    if run.model is None:
        tokenizer = build_tiny_tokenizer(env=run.env, env_kwargs=json_object("env_kwargs", args.env_kwargs))
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
        shown = Outcome.of(*turns.reset(seed=0))
        ids = make_chat(tokenizer, turns, args).start(shown.observation, tools_of(turns), shown.pictures)
        turns.close()
        prompt, rows["first prompt"] = len(ids), str(tokenizer.decode(ids))
    replies, most = args.max_turns * args.max_reply_length, args.max_completion_length or 10**9
    longest = min(prompt + most, args.max_turns * prompt + replies)  # later messages as long as the first one
    sampled = f"of which {min(replies, most):,} are sampled"
    rows["tokens"] = f"{prompt:,} in the first prompt, then at most {most:,}, {sampled}"
    parts = memory(config, args, longest, run.lora_r, run.eval_episodes)
    rows["memory"] = (
        f"about {parts.pop('peak') / 2**30:.2f} GiB a process at its peak, with {longest:,} tokens a trajectory;\n"
        "messages longer than the first, libraries and fragmentation come on top\n"
    ) + "\n".join(f"{size / 2**20:>9,.1f} MiB  {name}" for name, size in parts.items() if size)
    sections = (f"{label}\n{indent(text, '    ')}" for label, text in rows.items())
    return "\n".join(["Plan of `train`; nothing was trained or written", *sections])


def memory(
    config: PretrainedConfig, args: StarPOConfig, tokens: int, lora_rank: int = 0, eval_episodes: int = 0
) -> dict[str, int]:
    """Bytes of each part of the memory of one process, by arithmetic on the model's shape; ``peak`` of them together.

    The larger of a rollout and an update counts beside what is always held. ``tokens`` is the length of the longest
    trajectory, its first prompt included. Left out: libraries, fragmentation, temporaries inside a kernel.
    """
    text = config.get_text_config()
    with torch.device("meta"):  # no weights are made
        model = AutoModelForCausalLM.from_config(config)
    linear = [
        each for each in model.modules() if isinstance(each, nn.Linear) and each is not model.get_output_embeddings()
    ]
    all_weights = model.num_parameters()
    trained = lora_rank * sum(each.in_features + each.out_features for each in linear) or all_weights
    heads, layers, hidden, words = text.num_attention_heads, text.num_hidden_layers, text.hidden_size, text.vocab_size
    wide = getattr(text, "intermediate_size", None) or 4 * hidden
    head_size = getattr(text, "head_dim", None) or hidden // heads
    queries, keys = heads * head_size, (getattr(text, "num_key_value_heads", None) or heads) * head_size
    loading = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    held = 2 if str(loading.get("dtype")).endswith("float16") else 4  # bytes of a weight; TRL loads float32
    computed = 2 if args.bf16 or args.fp16 else held  # bytes of a number that is computed
    weights, gradients, moments = shares()

    played = max(args.per_device_train_batch_size * (args.steps_per_generation or 1), min(BATCH_SIZE, eval_episodes))
    rows = 0 if args.use_vllm else min(played, args.rollout_batch_size or played)
    rollout = {
        "keys and values, in a rollout": layers * 2 * keys * computed * rows * round(1.125 * tokens),
        "cast or gathered weights, in a rollout": all_weights * 2 if computed < held or weights > 1 else 0,
        "distributions of a token, in a rollout": rows * words * 16,
    }
    batch = args.per_device_train_batch_size * tokens  # of a micro-batch
    # What autograd keeps of a token in a layer: norms, residuals, attention, feed-forward, casts of their inputs.
    if computed == 4:
        kept = (4 if lora_rank else 6) * 4 * hidden + 16 * (queries + wide)
    else:
        kept = (18 if lora_rank else 26 if held == 4 else 16) * hidden + (10 if lora_rank else 8) * queries + 8 * wide
    kept += 7 * computed * lora_rank + computed * tokens + 4 * heads + 8
    checkpointing = bool(args.gradient_checkpointing)
    activations = batch * kept * (1 if checkpointing else layers)
    tile = min(batch, _HEAD_TOKENS) * min(words, _HEAD_WORDS) * computed
    head = tile + ((0 if lora_rank else words) + batch) * hidden * 4
    update = {
        "gradients, in an update": trained * 4 // gradients,
        "checkpoints of layers, in an update": batch * layers * hidden * held if checkpointing else 0,
        # The head's tiles are gone before a checkpointed layer is computed again.
        "activations, in an update": activations if not checkpointing or activations > head else 0,
        "language-model head, in an update": head if not checkpointing or head >= activations else 0,
    }
    second = bool(args.beta or args.log_kl or isinstance(args, AStarPOConfig)) and not lora_rank
    always = {
        "weights": all_weights * held // weights,
        "LoRA": trained * 4 if lora_rank else 0,
        "AdamW": trained * 2 * 4 // moments,
        "reference": all_weights * held // weights if second else 0,
        "critic": trained * 3 * 4 // moments if args.advantage in CRITIC_ADVANTAGES else 0,
    }
    peak = sum(always.values()) + max(sum(rollout.values()), sum(update.values()))
    return {**always, **rollout, **update, "peak": peak}


def shares() -> tuple[int, int, int]:
    """Among how many processes ``accelerate launch`` divides weights, gradients and the optimizer's moments."""
    processes, stage = launched(), 0
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        stage = 3
    elif os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        stage = int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))
    weights, gradients, moments = (processes if stage >= least else 1 for least in (3, 2, 1))
    return weights, gradients, moments
