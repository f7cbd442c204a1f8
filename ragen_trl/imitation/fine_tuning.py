"""Warm start: supervised fine-tuning on demonstrations, with enough noise to leave something for RL to improve.

Demonstrations are played by the loop that trains later, so prompts, masks and token ids are the same as in rollouts.
TRL's ``SFTTrainer`` learns from them. A warm start that was stopped goes on from its last checkpoint, if it is the same
warm start: a digest tells, of the demonstrations token for token, the weights that it begins with, and how it learns.
"""

import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import EarlyStoppingCallback, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import SaveStrategy
from trl import SFTConfig, SFTTrainer

from ragen_envs import AgentTurns, NoOracleError, demonstration, explain
from ragen_trl.batching.shared_prefixes import PackedModel
from ragen_trl.config.options import WarmStartConfig
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.imitation.demonstrations import DemonstrationsError
from ragen_trl.policies.models import lora
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.env_specs import env_specs
from ragen_trl.rollout.environments import make_chat, make_turns, played_later, save_play_options, write_calls_as
from ragen_trl.rollout.interfaces import Start, TurnEnv
from ragen_trl.rollout.seeds import WARM_START
from ragen_trl.system.atomic import move_into_place, partial_of, write_atomically
from ragen_trl.system.hashing import hash_weight
from ragen_trl.system.progress import progress_bar
from ragen_trl.training.checkpoints import last_whole_checkpoint
from ragen_trl.training.launch import use_one_device, without_tied_head
from ragen_trl.training.scoring import can_share_prefixes, without_wrappers
from ragen_trl.training.training_bar import TrainingBar, show_progress
from ragen_trl.trajectory import Trajectory

logger = logging.getLogger(__name__)

# How often a pass over the demonstrations is saved, and the loss of what is held out computed; after how many times
# without a new minimum of it learning stops.
_SAVES_OF_A_PASS = 4
_PATIENCE = 3
_BEGUN = "begun.json"  # holds the digest until the folder is whole


def demonstrate(
    env: str | Callable[[], gymnasium.Env[str, str]],
    args: StarPOConfig,
    chat: Chat,
    config: WarmStartConfig,
    batch_size: int = 256,
) -> list[Trajectory]:
    """Play episodes of a noisy oracle, on warm-start seeds, which neither evaluation nor RL uses.

    Where replies have thoughts, `ragen_envs.explain` gives them. A thought stays empty in an environment that explains
    nothing, and in a reply that would be longer than ``max_reply_length`` tokens with it. All processes play the same
    episodes. One that fails in its environment on any of them is left out on all.
    """
    count, most = min(args.max_actions_per_turn, config.demo_actions_per_turn), args.max_reply_length
    notes: dict[str, str] = {}  # what to say, once

    def script(turns: TurnEnv, random: np.random.Generator) -> str:
        assert isinstance(turns, AgentTurns)
        actions = demonstration(turns, turns.actions_left, count, random, config.noise)
        reply = turns.format_reply(actions)
        if turns.reply_format.think:
            try:
                explained = turns.format_reply(actions, explain(turns, actions, random.spawn(1)[0]))
            except NoOracleError as error:
                notes["none"] = f"demonstrations have empty thoughts: {error}"
                return reply
            if len(chat.encode_reply(explained)) <= most:
                return explained
            notes["long"] = (
                f"some demonstrations leave their thought empty, which is longer than max_reply_length={most}"
            )
        elif len(chat.encode_reply(reply)) > most:
            notes["cut"] = f"some demonstrated replies are longer than max_reply_length={most}: they are cut in play"
        return reply

    policy = ScriptedPolicy(script, chat)
    specs, pool = env_specs(env, args), EnvPool(args, partial(write_calls_as, chat))
    trajectories: list[Trajectory] = []
    with progress_bar(config.demonstrations, "demonstrations", "episode") as bar:
        for first in range(0, config.demonstrations, batch_size):
            seeds = range(WARM_START + first, WARM_START + min(first + batch_size, config.demonstrations))
            starts = [Start.drawn(seed, (args.seed, seed)) for seed in seeds]
            trajectories += pool.play(pool.take(specs * len(starts)), policy, starts)
            bar.update(len(starts))
    pool.close()
    for note in notes.values():
        logger.warning("%s", note)
    failed = set(gather_object([one.seed for one in trajectories if one.limit in FAILURES]))
    return [one for one in trajectories if one.seed not in failed]


def to_examples(trajectories: Sequence[Trajectory]) -> Dataset:
    """Token-exact examples for ``SFTTrainer``: ``labels`` are -100 everywhere except on reply tokens."""
    rows: dict[str, list[Any]] = {"input_ids": [], "labels": []}
    for segment in (segment for trajectory in trajectories for segment in trajectory.segments):
        ids = list(segment.token_ids)
        rows["input_ids"].append(ids)
        rows["labels"].append([i if bit else -100 for i, bit in zip(ids, segment.action_mask, strict=True)])
    return Dataset.from_dict(rows)


class PackedSFTTrainer(SFTTrainer):  # type: ignore[misc]
    """TRL's ``SFTTrainer`` with rows stored as prefix trees; a model that cannot be packed is trained as TRL does.

    All demonstrations of an environment begin with its instruction, and only replies are learnt, so most of what TRL
    would compute is the same in every row or not asked for. Relies on ``compute_loss`` calling the model once, with
    ``fused_lm_head=True``, and reading ``log_probs``, ``entropy``, ``is_top1`` and ``label_mask``.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._shares_prefixes = can_share_prefixes(self, self.aux_loss_enabled)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        """As in TRL."""
        if self._shares_prefixes:
            model = PackedModel(model, without_wrappers(self, model))
        return super().compute_loss(model, inputs, *args, **options)


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    env: str | Callable[[], gymnasium.Env[str, str]],
    args: StarPOConfig,
    config: WarmStartConfig,
    output_dir: str | os.PathLike[str],
    demonstrations: Sequence[Trajectory] | None = None,
) -> Path:
    """Fine-tune ``model`` on demonstrations and save it, with its tokenizer, to ``output_dir``.

    The folder appears complete or not at all. Until then ``<output_dir>.partial`` has a checkpoint of every quarter of
    a pass, from which the same call goes on; its weights at the end are the same as without a stop. Launches that
    divide the model begin again. Processes share each batch; the main one writes.

    Args:
        model: The model; its weights change.
        tokenizer: Its tokenizer.
        env: A Gymnasium id or a function, as for the trainer. Where a model learns for another environment than this
            one (`TextEnv.learnt_for`), ``play.json`` names that one.
        args: Limits and format of play, seed, precision.
        config: How demonstrations are played and learned.
        output_dir: Folder for the model.
        demonstrations: Episodes in this tokenizer's tokens (`demonstrations.demonstrations_from`) instead of oracle
            play. ``config`` then only says how they are learned.

    Returns:
        ``output_dir``, whose ``warm_start.json`` describes the demonstrations.

    Raises:
        DemonstrationsError: If there is no episode, or one without tokens.
        OptionError: If observations are pictures, no demonstration would be left to learn from, processes cannot share
            a batch evenly, or ``output_dir`` is a file or holds something other than a warm start.
    """
    check_observation(args)
    target = Path(output_dir)
    folder = partial_of(target)
    replaceable = not target.exists() or (target / "warm_start.json").exists()
    if not replaceable and (target.is_file() or any(target.iterdir())):
        raise OptionError(f"{target} holds something other than a warm start, so it is not replaced; name another")
    later = played_later(env, args)
    noise = {"noise": config.noise} if demonstrations is None else {}
    if demonstrations is None:
        demonstrations = demonstrate(env, args, make_chat(tokenizer, make_turns(env, args), args), config)
    _check_learnable(demonstrations)
    trainer = _fit(model, tokenizer, args, config, demonstrations, folder)
    note: dict[str, Any] = {"demonstrations": len(demonstrations), **noise}
    note |= {"successes": sum(one.success for one in demonstrations), "updates": trainer.state.global_step}
    losses = {row["step"]: row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row}
    if losses:  # of what was held out, and the update after which the weights were taken
        note |= {"held_out_losses": losses, "best_update": min(losses, key=losses.__getitem__)}
    if args.process_index == 0:
        save_play_options(folder, later, args)
        (folder / "warm_start.json").write_text(json.dumps(note, indent=2))
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
        (folder / _BEGUN).unlink(missing_ok=True)
        move_into_place(target)
    trainer.accelerator.wait_for_everyone()
    return target


def check_observation(args: StarPOConfig) -> None:
    """Raise `OptionError` for pictures, which TRL's supervised trainer takes no token ids with."""
    if args.observation == "image":
        raise OptionError(
            "observation is 'image', but a warm start learns from text; take 'text', or begin with a model that sees"
        )


def held_out_of(demonstrations: int, share: float) -> int:
    """How many demonstrations are not learnt; `OptionError` if none would be left."""
    held_out = math.ceil(share * demonstrations)
    if held_out == demonstrations:
        raise OptionError(
            f"demo_held_out={share} leaves none of {demonstrations} demonstrations to learn from; lower it (0 holds "
            "out nothing), or play more demonstrations"
        )
    return held_out


def _check_learnable(demonstrations: Sequence[Trajectory]) -> None:
    if not demonstrations:
        raise DemonstrationsError("there are no demonstrations; play more episodes, or keep more of them")
    for trajectory in demonstrations:
        if not all(turn.prompt_ids and turn.reply_ids for turn in trajectory.turns):
            raise DemonstrationsError(
                f"the episode of seed {trajectory.seed} has a turn without tokens; collect demonstrations with "
                "ragen_trl.imitation.demonstrations.demonstrations_from and the chat of the model that learns"
            )


def _fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    args: StarPOConfig,
    config: WarmStartConfig,
    demonstrations: Sequence[Trajectory],
    folder: Path,
) -> PackedSFTTrainer:
    """Learn, from the last checkpoint in ``folder`` if it is of the same warm start, and save the model there."""
    held_out = held_out_of(len(demonstrations), config.demo_held_out)
    chosen = set(np.random.default_rng(args.seed).permutation(len(demonstrations))[:held_out].tolist())
    aside = [one for row, one in enumerate(demonstrations) if row in chosen]
    learnt = [one for row, one in enumerate(demonstrations) if row not in chosen]
    examples, others = to_examples(learnt), to_examples(aside)
    trained = [value.requires_grad for value in model.parameters()]
    settings = {**asdict(config), "seed": args.seed, "bf16": args.bf16, "processes": args.world_size}
    begun = json.dumps({"digest": _digest(model, (examples, others) if aside else (examples,), settings)})
    routes = getattr(model.config, "output_router_logits", None)
    trainer = PackedSFTTrainer(
        model,
        args=_sft_config(folder / "checkpoints", args, config, len(examples)),
        train_dataset=examples,
        eval_dataset=others if aside else None,
        processing_class=tokenizer,
        callbacks=[EarlyStoppingCallback(_PATIENCE)] if aside else None,
        peft_config=lora(config.demo_lora_r, config.demo_lora_r),
    )
    divided = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    if divided and not aside:  # nobody would go on from its checkpoints
        trainer.args.save_strategy = SaveStrategy.NO
    if args.process_index == 0:
        note = folder / _BEGUN
        if divided or not note.exists() or note.read_text(encoding="utf-8") != begun:
            shutil.rmtree(folder, ignore_errors=True)
            write_atomically(note, begun)
    trainer.accelerator.wait_for_everyone()
    checkpoint = None if divided else last_whole_checkpoint(folder / "checkpoints")
    show_progress(trainer, TrainingBar("warm start", {"loss": "loss", "mean_token_accuracy": "accuracy"}))
    with without_tied_head(model):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if routes is not None:  # TRL has switched it on, and it would be saved
        model.config.output_router_logits = routes
    if config.demo_lora_r:
        merged = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
        if args.process_index == 0:
            merged.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        for value, was_trained in zip(merged.parameters(), trained, strict=True):  # PEFT has frozen them
            value.requires_grad_(was_trained)
    else:
        trainer.save_model(str(folder))  # with the tokenizer
    trainer.accelerator.wait_for_everyone()  # they may still read the weights of the smallest loss
    return trainer


def _sft_config(folder: Path, args: StarPOConfig, config: WarmStartConfig, examples: int) -> SFTConfig:
    each, left = divmod(config.demo_batch_size, args.world_size)
    if left:
        raise OptionError(
            f"demo_batch_size is {config.demo_batch_size}, which {args.world_size} processes cannot share evenly; give "
            "a multiple of them"
        )
    of_a_pass = math.ceil(examples / config.demo_batch_size)
    stops = bool(config.demo_held_out)
    settings = SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=each,
        per_device_eval_batch_size=each,
        learning_rate=config.demo_learning_rate,
        num_train_epochs=config.demo_epochs,
        lr_scheduler_type="cosine",
        warmup_steps=min(20, math.ceil(0.1 * of_a_pass * config.demo_epochs)),
        adam_beta2=0.99,
        max_length=None,
        gradient_checkpointing=False,
        eval_strategy="steps" if stops else "no",
        save_strategy="steps",
        eval_steps=math.ceil(of_a_pass / _SAVES_OF_A_PASS),
        save_steps=math.ceil(of_a_pass / _SAVES_OF_A_PASS),
        load_best_model_at_end=stops,
        save_total_limit=1,
        restore_callback_states_from_checkpoint=True,  # patience
        logging_steps=10,
        report_to="none",
        seed=args.seed,
        bf16=args.bf16,
        use_cpu=args.use_cpu,
        ddp_backend=args.ddp_backend,
        ddp_timeout=args.ddp_timeout,
        ddp_find_unused_parameters=False,
        disable_tqdm=True,
        dataloader_pin_memory=args.dataloader_pin_memory,
    )
    use_one_device(settings)
    return settings


def _digest(model: PreTrainedModel, data: Iterable[Dataset], settings: Mapping[str, Any]) -> str:
    """SHA-256 of what a warm start comes from: the model before the first update, the examples, the settings."""
    known = {**settings, "model": model.config.to_dict()}
    found = sha256(json.dumps(known, sort_keys=True, default=str).encode())
    for name, value in model.named_parameters():
        hash_weight(found, name, value.detach())
    for examples in data:
        table = examples.with_format("arrow")[:]
        for name in table.column_names:
            rows = table[name].combine_chunks()
            found.update(f"{name} {len(rows)}".encode())
            found.update(rows.value_lengths().to_numpy())
            found.update(rows.flatten().to_numpy())
    return found.hexdigest()
