"""What a command would do, for ``--dry-run``: nothing is trained, written or deleted.

Tokens are given as an upper bound, from the limits, and as an estimate from a few episodes of the random policy in the
model's own tokens. If a model is only on a hub that cannot be reached, its lines say so and the others stay.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean

import numpy as np
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from ragen_envs import AgentTurns, EnvError, NoOracleError, random_action
from ragen_trl.cli.environments import check_start
from ragen_trl.cli.memory_estimate import ModelShapeError, shape_of
from ragen_trl.cli.memory_plan import longest_row, memory_in_words, played_at_a_time, shown_tokens
from ragen_trl.cli.run_state import check_output_folder, finished_stages
from ragen_trl.config.astar_po import AStarPOConfig
from ragen_trl.config.commands import RunArguments, WarmStartArguments
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError, UserError
from ragen_trl.evaluation.folder import check_folder
from ragen_trl.evaluation.plan import EvalPlan, Task
from ragen_trl.evaluation.players import api_client, check_engine
from ragen_trl.imitation.fine_tuning import WarmStartConfig, check_observation, held_out_of
from ragen_trl.policies.gguf_file import model_source
from ragen_trl.policies.models import ModelNotFoundError, check_model, check_named_policy, short_context
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.policies.vision import picture_processor
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.env_specs import env_specs
from ragen_trl.rollout.environments import make_chat, make_turns, write_calls_as
from ragen_trl.rollout.episode import tools_of
from ragen_trl.rollout.interfaces import Start, TurnEnv
from ragen_trl.rollout.seeds import WARM_START, training_rows
from ragen_trl.system.terminal import heading
from ragen_trl.training.checkpoints import last_resumable_checkpoint
from ragen_trl.trajectory import Trajectory

_SAMPLE_EPISODES = 8
Rows = list[tuple[str, str]]


def training_plan(run: RunArguments, warm: WarmStartConfig, args: StarPOConfig, held_out: StarPOConfig) -> str:
    """The plan of ``train``; ``held_out`` is the configuration of the evaluations.

    Raises:
        UserError: As the command itself raises it.
        EnvError: If no episode can begin with the arguments of the environment.
    """
    training_rows(args)
    check_start(run.env, args)
    _check_evaluated(run.env, args, held_out)
    tokenizer, config = read_model(run.model, run.env)
    if run.model is None or config is not None:
        check_named_policy(run.model, args, None)
    episodes = sample_episodes(run.env, args, tokenizer, run.model)
    rows: Rows = [("run folder", _folder_state(args, run.overwrite))]
    rows += _environment(run.env, args.env_kwargs, args)
    rows += [("evaluated in", _with_arguments(run.env, held_out.env_kwargs))]
    rows += [("algorithm", _algorithm(run, args)), ("model", _model_in_words(run.model, config, args))]
    rows += _first_prompt(tokenizer, run.env, args)
    if run.model is None:
        rows += [("warm start", _warm_start_in_words(warm))]
    rows += _trajectories(run, args)
    rows += _tokens(args, episodes, _sampled(args))
    rows += [("memory", memory_in_words(run, args, config, episodes))]
    return _page("train", rows)


def warm_start_plan(run: WarmStartArguments, warm: WarmStartConfig, args: StarPOConfig) -> str:
    """The plan of ``warm-start``; arguments and errors as in `training_plan`."""
    check_observation(args)
    tokenizer, config = read_model(run.model, run.env)
    check_start(run.env, args)
    target = Path(args.output_dir)
    there = (target / "warm_start.json").exists()
    state = "holds a warm start, which only --overwrite true replaces" if there and not run.overwrite else "new"
    state = _refusal(partial(check_output_folder, target, "warm_start.json")) or f"{target}: {state}"
    rows: Rows = [("output folder", state), *_environment(run.env, args.env_kwargs, args)]
    rows += [("model", _model_in_words(run.model, config, args)), ("warm start", _warm_start_in_words(warm))]
    rows += _first_prompt(tokenizer, run.env, args)
    return _page("warm-start", rows + _tokens(args, sample_episodes(run.env, args, tokenizer), 0))


def evaluation_plan(plan: EvalPlan) -> str:
    """The plan of ``eval``; errors as in `training_plan`."""
    check_engine(plan)
    if (client := api_client(plan)) is not None:
        client.close()
    for model in plan.run.model:
        read_model(model, plan.tasks[0].name)
    for task in plan.tasks:
        check_start(task.spec.label, task.args["random"], task.spec.kwargs)
    checks = (check_output_folder, check_folder)
    refusal = next(filter(None, (_refusal(partial(check, plan.folder)) for check in checks)), "")
    there = not refusal and plan.folder.exists() and any(plan.folder.iterdir())
    state = "exists; goes on if no option has changed" if there else "new"
    rows: Rows = [("output folder", refusal or f"{plan.folder}: {state}")]
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
    known = [args for task in tasks for name, args in task.args.items() if name != "random"]
    return sum(episodes * args.max_turns * args.max_reply_length for args in known)


def _page(command: str, rows: Rows) -> str:
    width = max(len(label) for label, _ in rows)
    lines = [heading(f"Plan of `{command}`; nothing was trained or written")]
    for label, text in rows:
        first, *more = text.splitlines() or [""]
        lines += [f"  {label:<{width}}  {first}", *(f"  {'':<{width}}  {line}" for line in more)]
    return "\n".join(lines) + "\n"


def _folder_state(args: StarPOConfig, overwrite: bool) -> str:
    folder = Path(args.output_dir)
    if refusal := _refusal(partial(check_output_folder, folder)):
        return refusal
    if not folder.exists() or not any(folder.iterdir()):
        return f"{folder}: new"
    if overwrite:
        return f"{folder}: exists and would be deleted first (--overwrite)"
    if (folder / "summary.json").exists():
        return f"{folder}: holds a finished run, so the command would refuse; --overwrite true, or --output_dir"
    checkpoint = last_resumable_checkpoint(folder, args.steps_per_rollout, args.max_steps)
    done: list[str] = [name for name in ("random", "oracle", "before", "trained") if name in finished_stages(folder)]
    done += ["warm start"] if (folder / "warm_start").exists() else []
    finished = f"finished: {', '.join(done) or 'nothing'}"
    place = f"{checkpoint.name} of {args.max_steps}" if checkpoint else "no checkpoint, training starts again"
    return f"{folder}: an unfinished run; goes on if no option has changed\n{finished}; {place}"


def _refusal(check: Callable[[], None]) -> str:
    """What the command would say to a folder that it cannot write to; empty if it can."""
    try:
        check()
    except UserError as error:
        return f"the command would refuse: {error}"
    return ""


def _check_evaluated(env: str, args: StarPOConfig, held_out: StarPOConfig) -> None:
    """Raise `OptionError` if no episode of an evaluation can begin."""
    if held_out.env_kwargs == args.env_kwargs:
        return
    try:
        check_start(env, held_out)
    except EnvError as error:
        raise OptionError(f"evaluations have {held_out.env_kwargs}: {error}; eval_env_kwargs changes it") from None


def _environment(env: str, kwargs: object, args: StarPOConfig) -> Rows:
    limits = f"actions per turn {args.max_actions_per_turn}, actions in all {args.max_actions}, turns {args.max_turns}"
    return [("environment", f"{_with_arguments(env, kwargs)}\nlimits: {limits}")]


def _with_arguments(env: str, kwargs: object) -> str:
    return f"{env} {kwargs or ''}".rstrip()


def _algorithm(run: RunArguments, args: StarPOConfig) -> str:
    advantage = "" if isinstance(args, AStarPOConfig) else f", advantage {args.advantage}"
    parts = [f"{run.algo}{advantage}, {args.max_steps} updates, learning rate {args.learning_rate:g}"]
    if args.filter_ratio < 1 and args.filter_strategy == "top_k":
        parts += [f"trains on {args.groups_per_update} of {args.groups_per_generation} groups (top_k)"]
    elif args.filter_ratio < 1:
        parts += [f"trains on the groups with {args.filter_ratio:.0%} of the spread ({args.filter_strategy})"]
    if args.beta:
        parts += [f"KL coefficient {args.beta:g}"]
    elif args.log_kl:
        parts += ["logs the KL to this model"]
    return "; ".join(parts)


def _model_in_words(name: str | None, config: PretrainedConfig | None, args: StarPOConfig) -> str:
    shown = name or "embedded tiny Qwen2"
    if config is None:
        return f"{shown}: its config.json cannot be read here; save the model to a folder and give --model FOLDER"
    try:
        return f"{shown}: {shape_of(config).parameters:,} parameters\n{short_context(config, args)}".rstrip()
    except ModelShapeError as error:
        return f"{shown}: {error}"


def _first_prompt(tokenizer: PreTrainedTokenizerBase | None, env: str, args: StarPOConfig) -> Rows:
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
        f"{warm.demonstrations:,} demonstrations (noise {warm.noise:g}) · {warm.demo_epochs:g} epochs = "
        f"{updates:,.0f} updates of {warm.demo_batch_size}{' at most' if warm.demo_held_out else ''}, {trained} at "
        f"learning rate {warm.demo_learning_rate:g}"
    )


def _sampled(args: StarPOConfig) -> int:
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
    replies, most = args.max_turns * args.max_reply_length, args.max_completion_length
    replies = replies if most is None else min(replies, most)
    shown_at_most = "any number of them" if most is None else f"{most:,}"
    rows: Rows = [("tokens at most", f"{replies:,} sampled and {shown_at_most} after the first prompt")]
    if sampled:
        rows[0] = ("tokens at most", rows[0][1] + f" of a trajectory; {sampled * replies:,} sampled in all rollouts")
    if not episodes:
        return [*rows, ("tokens, typical", "not estimated: the tokenizer cannot be read here")]
    shown = fmean(map(shown_tokens, episodes))
    written = fmean(one.num_reply_tokens for one in episodes)
    turns = fmean(len(one.turns) for one in episodes)
    text = (
        f"{shown:,.0f} shown and {written:,.0f} written in {turns:.1f} turns of bare actions ({len(episodes)} episodes "
        "of random play)"
    )
    if sampled:
        text += f"; {sampled * (shown + written):,.0f} in all rollouts" + ("; thoughts are on top" * args.think)
    return [*rows, ("tokens, typical", text + _rows_in_words(episodes))]


def _rows_in_words(episodes: Sequence[Trajectory]) -> str:
    """How contexts that are built again divide a trajectory; empty if they only grow."""
    rows, longest = fmean(len(one.segments) for one in episodes), max(map(longest_row, episodes))
    if rows == 1:
        return ""
    return (
        f"\ncontexts are built again: {rows:.1f} rows a trajectory, of at most {longest:,} tokens; a rollout holds one "
        "of them at a time, an update all"
    )


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
