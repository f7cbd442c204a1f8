"""What ``train`` would do, for ``--dry-run``, and how much memory it takes; nothing is trained or written.

Tokens are an upper bound, from the limits, and an estimate from a few episodes of the random policy in the model's own
tokens. If a model is only on a hub that cannot be reached, its lines say so and the others stay.
"""

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from ragen_envs import AgentTurns, NoOracleError, random_action
from ragen_trl.cli.environments import check_env
from ragen_trl.cli.stages import check_output_folder, is_finished, read_stages
from ragen_trl.cli.training_run import check, evaluated
from ragen_trl.config.options import CRITIC_ADVANTAGES, RunArguments, WarmStartConfig
from ragen_trl.config.starpo import AStarPOConfig, StarPOConfig
from ragen_trl.evaluation.evaluator import BATCH_SIZE
from ragen_trl.policies.gguf_file import model_source
from ragen_trl.policies.models import ModelNotFoundError, check_model
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.env_specs import env_specs
from ragen_trl.rollout.environments import make_chat, make_turns, write_calls_as
from ragen_trl.rollout.interfaces import Start, TurnEnv
from ragen_trl.rollout.seeds import WARM_START
from ragen_trl.system.terminal import heading
from ragen_trl.training.checkpoints import last_resumable_checkpoint
from ragen_trl.trajectory import Trajectory

_HEAD_TOKENS, _HEAD_WORDS = 4096, 32768  # TRL computes the head of a model in tiles
Rows = list[tuple[str, str]]


def training_plan(run: RunArguments, warm: WarmStartConfig, args: StarPOConfig) -> str:
    """The plan of ``train``; it raises what the command itself would raise before it begins."""
    check(run, args)
    held_out = evaluated(run, args)
    for each in (args, held_out):
        check_env(run.env, each, start=True)
    tokenizer, config = read_model(run.model, run.env)
    size, sampled = args.generation_batch_size, args.num_rollouts * (args.generation_batch_size or 0)
    kept = f"; trains on the {args.filter_ratio:.0%} that differ most ({args.filter_strategy})" * (
        args.filter_ratio < 1
    )
    rows: Rows = [
        ("run folder", _state_of(Path(args.output_dir), args, run.overwrite)),
        (
            "environment",
            f"{run.env} {args.env_kwargs or ''}\nlimits: actions per turn {args.max_actions_per_turn}, actions in all "
            f"{args.max_actions}, turns {args.max_turns}",
        ),
        ("evaluated in", f"{run.env} {held_out.env_kwargs or ''}; 4 · {run.eval_episodes:,} episodes"),
        (
            "algorithm",
            f"{run.algo}, advantage {args.advantage}, {args.max_steps} updates, learning rate "
            f"{args.learning_rate:g}, KL coefficient {args.beta:g}{kept}",
        ),
        ("model", _described(run.model, config)),
    ]
    if run.model is None:
        updates = -(-warm.demonstrations // warm.demo_batch_size) * warm.demo_epochs
        text = f"{warm.demonstrations:,} demonstrations (noise {warm.noise:g}) · {warm.demo_epochs:g} epochs = at most "
        rows.append(("warm start", f"{text}{updates:,.0f} updates of {warm.demo_batch_size}"))
    rows.append(
        (
            "trajectories",
            f"{args.groups_per_generation} start states · {args.num_generations} = {size} a rollout; "
            f"{args.num_rollouts:,} rollouts = {sampled:,}",
        )
    )
    if isinstance(args, AStarPOConfig):
        starts = args.num_train_seeds or args.num_rollouts * args.groups_per_generation
        most = f"{args.reference_samples * starts:,} to {args.max_reference_samples * starts:,}"
        rows.append(("reference", f"before that {most} episodes of it, from {starts:,} start states"))
    episodes: Sequence[Trajectory] = []
    if tokenizer is not None:
        episodes = _episodes(run.env, args, tokenizer)
        rows += _tokens(tokenizer, run.env, args, episodes)
    longest = max(map(_shown, episodes), default=0) + args.max_turns * args.max_reply_length
    if args.max_completion_length is not None:
        first = max((len(one.turns[0].prompt_ids) for one in episodes), default=0)
        longest = min(longest, first + args.max_completion_length)
    if config is not None:
        parts = memory(config, args, longest, run.lora_r, run.eval_episodes)
        peak = (
            f"about {parts['peak'] / 2**30:.2f} GiB a process at its peak, if every trajectory has {longest:,} tokens;"
        )
        lines = [f"{size / 2**20:>9,.1f} MiB  {name}" for name, size in parts.items() if name != "peak" and size]
        rows.append(("memory", "\n".join([peak, "libraries and fragmentation come on top", *lines])))
    width = max(len(label) for label, _ in rows)
    lines = [heading("Plan of `train`; nothing was trained or written")]
    for label, text in rows:
        first_line, *more = text.splitlines() or [""]
        lines += [f"  {label:<{width}}  {first_line}", *(f"  {'':<{width}}  {line}" for line in more)]
    return "\n".join(lines) + "\n"


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
    processes, stage = int(os.environ.get("WORLD_SIZE", "1")), 0
    if os.environ.get("ACCELERATE_USE_FSDP", "").lower() == "true":
        stage = 3
    elif os.environ.get("ACCELERATE_USE_DEEPSPEED", "").lower() == "true":
        stage = int(os.environ.get("ACCELERATE_DEEPSPEED_ZERO_STAGE", "2"))
    weights, gradients, moments = (processes if stage >= least else 1 for least in (3, 2, 1))
    return weights, gradients, moments


def read_model(name: str | None, env: str) -> tuple[PreTrainedTokenizerBase | None, PretrainedConfig | None]:
    """Tokenizer and configuration, without weights; ``None`` for what is only on a hub that cannot be reached.

    ``name`` is a folder, hub id or GGUF file, ``None`` for the embedded model, whose tokenizer depends on ``env``.

    Raises:
        ModelNotFoundError: If a folder or file holds no model.
    """
    if name is None:
        tokenizer = build_tiny_tokenizer(env=env)
        return tokenizer, build_tiny_model(tokenizer).config
    try:
        config = check_model(name)
        return AutoTokenizer.from_pretrained(**model_source(name)), config
    except ModelNotFoundError as error:
        if error.__cause__ is None or Path(name).expanduser().exists():  # other failures of the hub have a cause
            raise
    except (OSError, ValueError):
        return None, config
    return None, None


def _episodes(env: str, args: StarPOConfig, tokenizer: PreTrainedTokenizerBase) -> Sequence[Trajectory]:
    """A few episodes of random actions in the model's tokens; none of pictures, or without a random policy."""
    if args.observation == "image":
        return []

    def script(turns: TurnEnv, random: np.random.Generator) -> str:
        assert isinstance(turns, AgentTurns)
        return turns.format_reply([random_action(turns, random)])

    chat = make_chat(tokenizer, make_turns(env, args), args)
    policy, pool = ScriptedPolicy(script, chat), EnvPool(args, partial(write_calls_as, chat))
    starts = [Start.drawn(seed, (args.seed, seed)) for seed in range(WARM_START, WARM_START + 8)]
    try:
        return list(pool.play(pool.take(env_specs(env, args) * len(starts)), policy, starts))
    except NoOracleError:
        return []
    finally:
        pool.close()


def _tokens(tokenizer: PreTrainedTokenizerBase, env: str, args: StarPOConfig, episodes: Sequence[Trajectory]) -> Rows:
    most = args.max_completion_length
    replies = min(args.max_turns * args.max_reply_length, most or 10**12)
    text = f"at most {replies:,} sampled and {most or 'any number':,} after the first prompt of a trajectory"
    if not episodes:
        return [("tokens", text)]
    shown, written = fmean(map(_shown, episodes)), fmean(one.num_reply_tokens for one in episodes)
    turns = fmean(len(one.turns) for one in episodes)
    text += f"\n{shown:,.0f} shown and {written:,.0f} written in {turns:.1f} turns of random play, without thoughts"
    return [("first prompt", str(tokenizer.decode(episodes[0].turns[0].prompt_ids))), ("tokens", text)]


def _shown(episode: Trajectory) -> int:
    """Tokens of all rows of an episode that the model did not sample there, earlier replies included."""
    return sum(len(row.token_ids) for row in episode.segments) - episode.num_reply_tokens


def _described(name: str | None, config: PretrainedConfig | None) -> str:
    if config is None:
        return f"{name}: its config.json cannot be read here; save the model to a folder and give --model FOLDER"
    with torch.device("meta"):
        count = AutoModelForCausalLM.from_config(config).num_parameters()
    return f"{name or 'embedded tiny Qwen2'}: {count:,} parameters"


def _state_of(folder: Path, args: StarPOConfig, overwrite: bool) -> str:
    check_output_folder(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return f"{folder}: new"
    if overwrite:
        return f"{folder}: exists and would be deleted first (--overwrite)"
    if is_finished(folder):
        return f"{folder}: holds a finished run, so the command would refuse; --overwrite true, or --output_dir"
    done = [name for name in ("random", "oracle", "before", "trained") if name in read_stages(folder)["values"]]
    checkpoint = last_resumable_checkpoint(folder, args.steps_per_rollout, args.max_steps)
    place = checkpoint.name if checkpoint else "no checkpoint"
    return f"{folder}: an unfinished run; goes on if no option has changed\nfinished: {', '.join(done)}; {place}"
