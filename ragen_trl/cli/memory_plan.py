"""What a configuration takes of memory, for ``--dry-run``: at most, and with trajectories as random play has them."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

import torch
from transformers import PretrainedConfig

from ragen_trl.cli.launch import Launch, LaunchConfigError, launch_of
from ragen_trl.cli.memory_estimate import (
    MemoryUse,
    ModelShape,
    ModelShapeError,
    memory_lines,
    peak_bytes,
    shape_of,
)
from ragen_trl.cli.processes import launched
from ragen_trl.config.astar_po import AStarPOConfig
from ragen_trl.config.commands import RunArguments
from ragen_trl.config.reading import CRITIC_ADVANTAGES
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.evaluation.evaluator import BATCH_SIZE
from ragen_trl.policies.models import context_length
from ragen_trl.trajectory import Trajectory

_GIB, _MIB = 2**30, 2**20


def memory_in_words(
    run: RunArguments, args: StarPOConfig, config: PretrainedConfig | None, episodes: Sequence[Trajectory]
) -> str:
    """The plan's lines about memory; ``dry_run.sample_episodes`` gives the episodes."""
    if config is None:
        return "not estimated: needs the model's config.json"
    try:
        shape = shape_of(config)
        launch = launch_of(max(launched(), run.num_processes), args.deepspeed, args.fsdp)
    except (ModelShapeError, LaunchConfigError) as error:
        return f"not estimated: {error}"
    turns = [turn for one in episodes for turn in one.turns]
    prompt = max((len(turn.context_ids or ()) + len(turn.prompt_ids) for turn in turns), default=None)
    longest, all_rows = likely_tokens(args, episodes, context_length(config))
    use = memory_use(args, run.lora_r, longest, prompt, run.eval_episodes, launch)
    use = replace(use, all_rows=None if all_rows == longest else all_rows)
    lines = memory_lines(shape, use)
    when = {"always": "held", "rollout": "in a rollout", "update": "in an update", "critic": "in the critic's fit"}
    table = [f"{_size(line.bytes):>9}  {line.name}, {when[line.phase]}: {line.formula}" for line in lines]
    each = f" in each of {launch.in_words()}" * (launch.processes > 1)
    most = f"at most {_size(peak_bytes(lines))} at its peak{each}"
    head = [f"{most}, if every trajectory has {_tokens(use)} and shares none;"]
    if episodes:
        usual = replace(use, tokens=round(fmean(map(longest_row, episodes))))
        if use.all_rows is not None:
            usual = replace(usual, all_rows=round(fmean(shown_tokens(one) + one.num_reply_tokens for one in episodes)))
        size = _size(peak_bytes(memory_lines(shape, usual))) + ", more with thoughts" * args.think
        head += [f"with the typical {_tokens(usual)} {size};"]
    head += ["libraries and fragmentation come on top (about 0.5 GiB with CUDA)"]
    if args.use_vllm:
        share = f"{args.vllm_gpu_memory_utilization:.0%} of this GPU" + ", not in updates" * args.vllm_enable_sleep_mode
        head += [f"vLLM takes {share if args.vllm_mode == 'colocate' else 'GPUs of its own'}"]
    head += _with_fewer_at_a_time(shape, use)
    if run.model is not None and not use.triton:
        there = peak_bytes(memory_lines(shape, replace(use, mixed=True, triton=True)))
        head += [f"this machine has no GPU; on one, with bf16: {_size(there)}"]
    return "\n".join(head + table)


def _with_fewer_at_a_time(shape: ModelShape, use: MemoryUse) -> list[str]:
    """What a smaller ``rollout_batch_size`` would save, where play is what takes the most."""
    fewer = replace(use, rollout_rows=use.rollout_rows // 2)
    most, less = (peak_bytes(memory_lines(shape, each)) for each in (use, fewer))
    if not fewer.rollout_rows or less == most:
        return []
    text = f"--rollout_batch_size {fewer.rollout_rows}: {_size(less)}"
    return [f"playing {use.rollout_rows} trajectories at a time takes the most; with {text}"]


def _tokens(use: MemoryUse) -> str:
    rows = "" if use.all_rows is None else f" (rows of at most {use.tokens:,})"
    return f"{use.all_rows or use.tokens:,} tokens{rows}"


def _size(count: int) -> str:
    return f"{count / _GIB:.2f} GiB" if count >= _GIB else f"{count / _MIB:.1f} MiB"


def played_at_a_time(args: StarPOConfig, eval_episodes: int = 0) -> dict[str, int]:
    """Trajectories that a process plays at the same time, by what plays them."""
    assert args.steps_per_generation is not None
    rollout = args.per_device_train_batch_size * args.steps_per_generation
    counts = {"in a rollout": rollout}
    if eval_episodes:
        counts["in an evaluation, before and after training"] = min(BATCH_SIZE, -(-eval_episodes // args.world_size))
    if args.eval_strategy != "no":
        counts["in an evaluation during training"] = args.per_device_eval_batch_size
    if isinstance(args, AStarPOConfig):
        counts["of the reference"] = rollout
    return {what: min(count, args.rollout_batch_size or count) for what, count in counts.items()}


def memory_use(
    args: StarPOConfig,
    lora_rank: int,
    tokens: int,
    prompt: int | None = None,
    eval_episodes: int = 0,
    launch: Launch = Launch(),
) -> MemoryUse:
    """How a configuration uses memory on one process.

    ``tokens`` is the length of the longest trajectory, ``prompt`` of the longest message of a turn, if it is known.
    """
    loading = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    return MemoryUse(
        rows=args.per_device_train_batch_size,
        tokens=tokens,
        rollout_rows=0 if args.use_vllm else max(played_at_a_time(args, eval_episodes).values()),
        weight_bytes=2 if str(loading.get("dtype")).endswith("float16") else 4,
        mixed=bool(args.bf16 or args.fp16),
        lora_rank=lora_rank,
        checkpointing=bool(args.gradient_checkpointing),
        merged=bool(args.merge_lora and lora_rank),
        reference=bool(args.beta or args.log_kl) or isinstance(args, AStarPOConfig),
        critic=args.advantage in CRITIC_ADVANTAGES,
        ahead=args.one_step_off_policy and not args.use_vllm,
        triton=torch.cuda.is_available() and not args.use_cpu,
        prompt=prompt,
        launch=launch,
    )


def likely_tokens(args: StarPOConfig, episodes: Sequence[Trajectory], known: int | None) -> tuple[int, int]:
    """Tokens of the longest likely row, and of all rows of the largest likely trajectory: the same if it is one row.

    They have the most prompt tokens seen in ``episodes`` and the longest replies; without any, only the limits (and the
    model's ``known`` positions) count.
    """
    first = max((len(one.turns[0].prompt_ids) for one in episodes), default=0)
    limits = [] if known is None else [known]
    most = args.max_completion_length
    if most is None and not episodes:
        limits.append(first + args.max_turns * args.max_reply_length)
    elif most is not None and (args.context is None or not episodes):  # it does not count what a function writes
        limits.append(first + most)
    sizes = [[min([size, *limits]) for size in _with_longest_replies(one, args)] for one in episodes] or [[min(limits)]]
    return max(map(max, sizes)), max(map(sum, sizes))


def _with_longest_replies(episode: Trajectory, args: StarPOConfig) -> list[int]:
    """Tokens of each row of an episode, if all replies in it were as long as they may be.

    Replies that a window shows again are among them. What a function writes is taken as it is.
    """
    rows, before = episode.segments, 0
    if len(rows) == 1:
        replies = min(args.max_turns, args.window_turns or args.max_turns)
        return [shown_tokens(episode) + replies * args.max_reply_length]
    sizes = []
    for row in rows:
        shown_again = args.window_turns - 1 if args.window_turns and before else 0
        end = before + len(row.turns)
        turns = episode.turns[before - shown_again : end]
        written = sum(len(turn.reply_ids) for turn in turns)
        sizes.append(len(row.token_ids) - written + len(turns) * args.max_reply_length)
        before = end
    return sizes


def longest_row(episode: Trajectory) -> int:
    """Tokens of the longest context that the model read, its reply included."""
    return max(len(row.token_ids) for row in episode.segments)


def shown_tokens(episode: Trajectory) -> int:
    """Tokens of all rows of an episode that the model did not sample there, earlier replies included."""
    return sum(len(row.token_ids) for row in episode.segments) - episode.num_reply_tokens
