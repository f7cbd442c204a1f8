"""What a command would do, for ``--dry-run``: nothing is trained, written or deleted.

Counts are exact. Tokens are given as an upper bound, from the limits, and as an estimate from a few episodes of the
random policy in the model's own tokens. Memory is an estimate by arithmetic (``memory_estimate.py``). If a model is
only on the hub and the hub cannot be reached, its lines say so and the others stay. Left out: time, which only a run
shows.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
import torch
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from ragen_envs import AgentTurns, NoOracleError, random_action
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
from ragen_trl.cli.run_state import finished_stages
from ragen_trl.config.astar_po import AStarPOConfig
from ragen_trl.config.commands import ModelArguments, RunArguments
from ragen_trl.config.reading import CRITIC_ADVANTAGES
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.evaluation.evaluator import BATCH_SIZE
from ragen_trl.evaluation.plan import EvalPlan, Task
from ragen_trl.imitation.fine_tuning import WarmStartConfig, check_observation, held_out_of
from ragen_trl.policies.gguf_file import model_source
from ragen_trl.policies.model_names import ModelNotFoundError, check_model
from ragen_trl.policies.model_support import context_length
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.policies.vision.loading import check_named_policy, picture_processor
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.env_specs import env_specs
from ragen_trl.rollout.environments import make_chat, make_turns, write_calls_as
from ragen_trl.rollout.episode import tools_of
from ragen_trl.rollout.interfaces import Start, TurnEnv
from ragen_trl.rollout.seeds import WARM_START, training_rows
from ragen_trl.system.terminal import heading
from ragen_trl.trainers.checkpoints import last_whole_checkpoint
from ragen_trl.trajectory import Trajectory

_GIB, _MIB = 2**30, 2**20
_SAMPLE_EPISODES = 8
Rows = list[tuple[str, str]]


def training_plan(run: RunArguments, warm: WarmStartConfig, args: StarPOConfig) -> str:
    """The plan of ``train``; ``args.output_dir`` is the run folder.

    Raises:
        UserError: As the command itself raises it.
    """
    training_rows(args)
    tokenizer, config = read_model(run.model, run.env)
    if run.model is None or config is not None:
        check_named_policy(run.model, args, None)
    episodes = sample_episodes(run.env, args, tokenizer, run.model)
    rows: Rows = [("run folder", _folder_state(Path(args.output_dir), run.overwrite, args.max_steps))]
    rows += _environment(run.env, args.env_kwargs, args)
    rows += [("algorithm", _algorithm(run, args)), ("model", _model_in_words(run.model, config))]
    rows += _first_prompt(tokenizer, run.env, args)
    if run.model is None:
        rows += [("warm start", _warm_start_in_words(warm))]
    rows += _trajectories(run, args)
    rows += _tokens(args, episodes, _sampled(args))
    rows += _memory(run, args, config, episodes)
    return _page("train", rows)


def warm_start_plan(run: ModelArguments, warm: WarmStartConfig, args: StarPOConfig) -> str:
    """The plan of ``warm-start``; arguments and errors are those of `training_plan`."""
    check_observation(args)
    tokenizer, config = read_model(run.model, run.env)
    target = Path(args.output_dir)
    state = "exists and would be replaced" if target.exists() else "new"
    rows: Rows = [("output folder", f"{target}: {state}"), *_environment(run.env, args.env_kwargs, args)]
    rows += [("model", _model_in_words(run.model, config)), ("warm start", _warm_start_in_words(warm))]
    rows += _first_prompt(tokenizer, run.env, args)
    return _page("warm-start", rows + _tokens(args, sample_episodes(run.env, args, tokenizer), 0))


def evaluation_plan(plan: EvalPlan) -> str:
    """The plan of ``eval``.

    Raises:
        ModelNotFoundError: If a folder holds no model.
    """
    for model in plan.run.model:
        read_model(model, plan.tasks[0].name)
    there = plan.folder.exists() and any(plan.folder.iterdir())
    state = "exists; goes on if no option has changed" if there else "new"
    rows: Rows = [("output folder", f"{plan.folder}: {state}")]
    players = [*plan.tasks[0].args, "oracle"]
    for task in plan.tasks:
        rows += _environment(task.name, task.spec.kwargs, task.args["random"])
    each = plan.run.episodes * plan.run.samples_per_start
    total = each * len(plan.tasks) * len(players)
    rows += [("policies", ", ".join(players))]
    places = f"{len(plan.tasks)} environments · {len(players)} policies"
    counts = f"{plan.run.episodes:,} start states · {plan.run.samples_per_start} episodes · {places}"
    rows += [("episodes", f"{counts} = {total:,}")]
    if written := _written(plan.tasks, each):
        rows += [("tokens", f"at most {written:,} sampled by models")]
    return _page("eval", rows)


def _written(tasks: Sequence[Task], episodes: int) -> int:
    """The most tokens that all models together can sample."""
    known = [args for task in tasks for name, args in task.args.items() if name != "random"]
    return sum(episodes * args.max_turns * args.max_reply_length for args in known)


def _page(command: str, rows: Rows) -> str:
    width = max(len(label) for label, _ in rows)
    lines = [heading(f"Plan of `{command}`; nothing was trained or written")]
    for label, text in rows:
        first, *more = text.splitlines() or [""]
        lines += [f"  {label:<{width}}  {first}", *(f"  {'':<{width}}  {line}" for line in more)]
    return "\n".join(lines) + "\n"


def _folder_state(folder: Path, overwrite: bool, max_steps: int) -> str:
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return f"{folder}: new"
    if not folder.is_dir():
        return f"{folder}: is a file, so the command would refuse; choose another --output_dir"
    if overwrite:
        return f"{folder}: exists and would be deleted first (--overwrite)"
    if (folder / "summary.json").exists():
        return f"{folder}: holds a finished run, so the command would refuse; --overwrite true, or --output_dir"
    checkpoint = last_whole_checkpoint(folder)
    done: list[str] = [name for name in ("random", "oracle", "before", "trained") if name in finished_stages(folder)]
    done += ["warm start"] if (folder / "warm_start").exists() else []
    finished = f"finished: {', '.join(done) or 'nothing'}"
    place = f"{checkpoint.name} of {max_steps}" if checkpoint else "no checkpoint, training starts again"
    return f"{folder}: an unfinished run; goes on if no option has changed\n{finished}; {place}"


def _environment(env: str, kwargs: object, args: StarPOConfig) -> Rows:
    limits = f"{args.max_turns} turns, {args.max_actions_per_turn} actions a turn, {args.max_actions} in all"
    return [("environment", f"{env} {kwargs or ''}".rstrip() + f"\nat most {limits}")]


def _algorithm(run: RunArguments, args: StarPOConfig) -> str:
    parts = [f"{run.algo}, advantage {args.advantage}, {args.max_steps} updates, learning rate {args.learning_rate:g}"]
    if args.filter_ratio < 1:
        parts += [f"trains on {args.groups_per_update} of {args.groups_per_generation} groups ({args.filter_strategy})"]
    if args.beta:
        parts += [f"KL coefficient {args.beta:g}"]
    return "; ".join(parts)


def _model_in_words(name: str | None, config: PretrainedConfig | None) -> str:
    shown = name or "embedded tiny Qwen2"
    if config is None:
        return f"{shown}: its config.json cannot be read here; save the model to a folder and give --model FOLDER"
    try:
        return f"{shown}: {shape_of(config).parameters:,} parameters"
    except ModelShapeError as error:
        return f"{shown}: {error}"


def _first_prompt(tokenizer: PreTrainedTokenizerBase | None, env: str, args: StarPOConfig) -> Rows:
    """All that the model reads before its first reply, with the environment's message as an ellipsis."""
    if tokenizer is None:
        return []
    turns = make_turns(env, args)
    ids = make_chat(tokenizer, turns, args).start("…", tools_of(turns))
    return [("first prompt", str(tokenizer.decode(ids)))]


def _warm_start_in_words(warm: WarmStartConfig) -> str:
    learnt = warm.demonstrations - held_out_of(warm.demonstrations, warm.demo_held_out)
    trained = f"LoRA of rank {warm.demo_lora_r}" if warm.demo_lora_r else "all weights"
    updates = -(-learnt // warm.demo_batch_size) * warm.demo_epochs
    return (
        f"{warm.demonstrations:,} episodes of oracle play (noise {warm.noise:g}) · {warm.demo_epochs:g} epochs = "
        f"{updates:,.0f} updates of {warm.demo_batch_size}{' at most' if warm.demo_held_out else ''}, {trained} at "
        f"learning rate {warm.demo_learning_rate:g}"
    )


def _sampled(args: StarPOConfig) -> int:
    """Trajectories of all rollouts, without refills and A*-PO's reference."""
    assert args.generation_batch_size is not None
    return args.num_rollouts * args.generation_batch_size


def _trajectories(run: RunArguments, args: StarPOConfig) -> Rows:
    rollouts, size = args.num_rollouts, args.generation_batch_size
    text = (
        f"{args.groups_per_generation} start states · {args.num_generations} = {size} a rollout; {rollouts:,} rollouts "
        f"= {_sampled(args):,}"
    )
    if args.max_refills:
        text += f"\nup to {args.max_refills} more rollouts each, while too few groups can be trained on"
    if isinstance(args, AStarPOConfig):
        starts = args.num_train_seeds or rollouts * args.groups_per_generation
        fewest, most = args.reference_samples * starts, args.max_reference_samples * starts
        text += f"\nbefore that {fewest:,} to {most:,} of the reference, from {starts:,} start states"
    at_a_time = played_at_a_time(args, run.eval_episodes)
    return [
        ("trajectories", text),
        ("evaluation", f"4 · {run.eval_episodes:,} episodes: random, oracle, before and after training"),
        ("at a time", "\n".join(f"{count:,} {what}" for what, count in at_a_time.items())),
    ]


def _tokens(args: StarPOConfig, episodes: Sequence[Trajectory], sampled: int) -> Rows:
    replies = min(args.max_turns * args.max_reply_length, args.max_completion_length or 0)
    rows: Rows = [("tokens at most", f"{replies:,} sampled and {args.max_completion_length:,} after the first prompt")]
    if sampled:
        rows[0] = ("tokens at most", rows[0][1] + f" of a trajectory; {sampled * replies:,} sampled in all rollouts")
    if not episodes:
        return [*rows, ("tokens, typical", "not estimated: the tokenizer cannot be read here")]
    shown = fmean(sum(len(turn.prompt_ids) for turn in one.turns) for one in episodes)
    written = fmean(one.num_reply_tokens for one in episodes)
    turns = fmean(len(one.turns) for one in episodes)
    text = (
        f"{shown:,.0f} shown and {written:,.0f} written in {turns:.1f} turns of bare actions ({len(episodes)} episodes "
        "of random play)"
    )
    if sampled:
        text += f"; {sampled * (shown + written):,.0f} in all rollouts" + ("; thoughts are on top" * args.think)
    return [*rows, ("tokens, typical", text)]


def played_at_a_time(args: StarPOConfig, eval_episodes: int = 0) -> dict[str, int]:
    """Trajectories that a process plays at the same time, by what plays them.

    Args:
        args: The configuration.
        eval_episodes: Episodes of an evaluation before and after training; 0: there is none.
    """
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

    Args:
        args: The configuration.
        lora_rank: Rank of LoRA; 0 trains all weights.
        tokens: Length of the longest trajectory.
        prompt: Length of the longest message of a turn, if it is known.
        eval_episodes: Episodes of an evaluation before and after training; 0: there is none.
        launch: What is divided among how many processes.
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
        reference=bool(args.beta) or isinstance(args, AStarPOConfig),
        critic=args.advantage in CRITIC_ADVANTAGES,
        ahead=args.one_step_off_policy and not args.use_vllm,
        triton=torch.cuda.is_available() and not args.use_cpu,
        prompt=prompt,
        launch=launch,
    )


def _memory(
    run: RunArguments, args: StarPOConfig, config: PretrainedConfig | None, episodes: Sequence[Trajectory]
) -> Rows:
    if config is None:
        return [("memory", "not estimated: needs the model's config.json")]
    try:
        shape = shape_of(config)
        launch = launch_of(max(launched(), run.num_processes), args.deepspeed, args.fsdp)
    except (ModelShapeError, LaunchConfigError) as error:
        return [("memory", f"not estimated: {error}")]
    known = context_length(config)
    prompt = max((len(turn.prompt_ids) for one in episodes for turn in one.turns), default=None)
    longest = longest_trajectory(args, episodes, known)
    use = memory_use(args, run.lora_r, longest, prompt, run.eval_episodes, launch)
    lines = memory_lines(shape, use)
    when = {"always": "held", "rollout": "in a rollout", "update": "in an update", "critic": "in the critic's fit"}
    table = [f"{_size(line.bytes):>9}  {line.name}, {when[line.phase]}: {line.formula}" for line in lines]
    each = f" in each of {launch.in_words()}" * (launch.processes > 1)
    head = [f"about {_size(peak_bytes(lines))} at its peak{each}, for trajectories of {use.tokens:,} tokens;"]
    head += ["libraries and fragmentation come on top (about 0.5 GiB with CUDA)"]
    if args.use_vllm:
        share = f"{args.vllm_gpu_memory_utilization:.0%} of this GPU" + ", not in updates" * args.vllm_enable_sleep_mode
        head += [f"vLLM takes {share if args.vllm_mode == 'colocate' else 'GPUs of its own'}"]
    head += _with_fewer_at_a_time(shape, use)
    if run.model is not None and not use.triton:
        there = peak_bytes(memory_lines(shape, replace(use, mixed=True, triton=True)))
        head += [f"this machine has no GPU; on one, with bf16: {_size(there)}"]
    return [("memory", "\n".join(head + table))]


def _with_fewer_at_a_time(shape: ModelShape, use: MemoryUse) -> list[str]:
    """What a smaller ``rollout_batch_size`` would save, where play is what takes the most."""
    fewer = replace(use, rollout_rows=use.rollout_rows // 2)
    most, less = (peak_bytes(memory_lines(shape, each)) for each in (use, fewer))
    if not fewer.rollout_rows or less == most:
        return []
    text = f"--rollout_batch_size {fewer.rollout_rows}: {_size(less)}"
    return [f"playing {use.rollout_rows} trajectories at a time takes the most; with {text}"]


def _size(count: int) -> str:
    return f"{count / _GIB:.2f} GiB" if count >= _GIB else f"{count / _MIB:.1f} MiB"


def read_model(name: str | None, env: str) -> tuple[PreTrainedTokenizerBase | None, PretrainedConfig | None]:
    """Tokenizer and configuration, without weights; ``None`` for what is only on a hub that cannot be reached.

    Args:
        name: Folder, hub id or GGUF file; ``None`` for the embedded model.
        env: Gymnasium id; the embedded tokenizer has its words as tokens.

    Raises:
        ModelNotFoundError: If a folder or file holds no model.
    """
    if name is None:
        tokenizer = build_tiny_tokenizer(env=env)
        return tokenizer, build_tiny_model(tokenizer).config
    try:
        config = check_model(name)
    except ModelNotFoundError as error:
        if error.__cause__ is None or Path(name).expanduser().exists():  # other failures of the hub have a cause
            raise
        return None, None
    try:
        tokenizer = AutoTokenizer.from_pretrained(**model_source(name))
    except (OSError, ValueError):
        tokenizer = None
    return tokenizer, config


def sample_episodes(
    env: str, args: StarPOConfig, tokenizer: PreTrainedTokenizerBase | None, model: str | None = None
) -> Sequence[Trajectory]:
    """A few episodes of random actions in the model's tokens; none if there is no tokenizer or no random policy."""
    if tokenizer is None:
        return []
    pictures = None if model is None else picture_processor(model, args, tokenizer)[0]

    def script(turns: TurnEnv, random: np.random.Generator) -> str:
        assert isinstance(turns, AgentTurns)
        return turns.format_reply([random_action(turns, random)])

    chat = make_chat(tokenizer, make_turns(env, args), args, None if pictures is None else pictures.text)
    policy, pool = ScriptedPolicy(script, chat), EnvPool(args, partial(write_calls_as, chat))
    starts = [Start.drawn(seed, (args.seed, seed)) for seed in range(WARM_START, WARM_START + _SAMPLE_EPISODES)]
    try:
        return list(pool.play(pool.take(env_specs(env, args) * len(starts)), policy, starts))
    except NoOracleError:
        return []
    finally:
        pool.close()


def longest_trajectory(args: StarPOConfig, episodes: Sequence[Trajectory], known: int | None) -> int:
    """Tokens of the longest likely trajectory: the most prompt tokens seen, and the longest replies.

    Args:
        args: Its limits are upper bounds.
        episodes: As `sample_episodes` plays them; without any, only the limits count.
        known: Number of positions of the model, if its configuration has it.
    """
    shown = [sum(len(turn.prompt_ids) for turn in one.turns) for one in episodes]
    first = [len(one.turns[0].prompt_ids) for one in episodes]
    limit = max(first, default=0) + (args.max_completion_length or 0)
    likely = max(shown) + args.max_turns * args.max_reply_length if shown else limit
    return min(limit, likely, known or limit)
