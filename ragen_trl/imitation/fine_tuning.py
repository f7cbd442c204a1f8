"""Warm start: supervised fine-tuning on demonstrations, with enough noise to leave something for RL to improve.

Demonstrations are played by the loop that trains later, so prompts, masks and token ids are the same as in rollouts.
TRL's ``SFTTrainer`` learns from them. A warm start that was stopped goes on from its last checkpoint, if it is the same
warm start: a digest tells, of the demonstrations token for token, the weights that it begins with, and how it learns.
"""

import json
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from accelerate.utils import gather_object
from datasets import Dataset
from transformers import EarlyStoppingCallback, PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy
from trl import SFTConfig, SFTTrainer

from ragen_envs import AgentTurns, NoOracleError, ToolTurns, demonstration, explain
from ragen_trl.batching.shared_prefixes import PackedModel
from ragen_trl.config.options import WarmStartConfig
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.evaluation.evaluator import play_in_batches
from ragen_trl.policies.models import lora
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.environments import make_chat, make_turns, played_later, save_play_options
from ragen_trl.rollout.interfaces import Start, TurnEnv
from ragen_trl.rollout.seeds import WARM_START
from ragen_trl.system.atomic import MANIFEST, read_manifest, seal, unseal, write_atomically
from ragen_trl.system.progress import progress_bar, show_metrics
from ragen_trl.system.provenance import provenance
from ragen_trl.training.checkpoints import facts_of, finish_checkpoint, last_whole_checkpoint
from ragen_trl.training.launch import use_one_device
from ragen_trl.training.reference import hash_weight
from ragen_trl.training.scoring import can_share_prefixes, without_wrappers
from ragen_trl.trajectory import Trajectory

_SAVES_OF_A_PASS = 4  # how often a pass is saved, and the loss of what is held out computed
_PATIENCE = 3  # learning stops after so many losses without a new minimum
_OF_THE_RUN = ("seed", "bf16", "use_cpu", "ddp_backend", "ddp_timeout", "dataloader_pin_memory")


def demonstrate(
    env: str | Callable[[], gymnasium.Env[str, str]],
    args: StarPOConfig,
    chat: Chat,
    config: WarmStartConfig,
) -> list[Trajectory]:
    """Play episodes of a noisy oracle, on warm-start seeds, which neither evaluation nor RL uses.

    Where replies have thoughts, `ragen_envs.explain` gives them. A thought stays empty in an environment that explains
    nothing, and in a reply that would be longer than ``max_reply_length`` tokens with it. All processes play the same
    episodes. One that fails in its environment on any of them is left out on all.
    """
    count = min(args.max_actions_per_turn, config.demo_actions_per_turn)

    def script(turns: TurnEnv, random: np.random.Generator) -> str:
        assert isinstance(turns, AgentTurns)
        actions = demonstration(turns, turns.actions_left, count, random, config.noise)
        reply = turns.format_reply(actions)
        if not turns.reply_format.think:
            return reply
        with suppress(NoOracleError):
            explained = turns.format_reply(actions, explain(turns, actions, random.spawn(1)[0]))
            if len(chat.encode_reply(explained)) <= args.max_reply_length:
                return explained
        return reply

    policy = ScriptedPolicy(script, chat)

    def write_calls_as_learnt(turns: AgentTurns) -> None:
        if isinstance(turns, ToolTurns):
            turns.call_format = chat.call_format

    seeds = range(WARM_START, WARM_START + config.demonstrations)
    starts = [Start.drawn(seed, (args.seed, seed)) for seed in seeds]
    trajectories: list[Trajectory] = []
    with progress_bar(len(starts), "demonstrations", "episode") as bar:
        for batch in play_in_batches(policy, env, args, starts, adapt=write_calls_as_learnt):
            trajectories += batch
            bar.update(len(batch))
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
        self._facts = facts_of(self)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        folder = Path(self.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        finish_checkpoint(self, folder, self._facts, limit=1)

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

    The folder is whole with its manifest. Until then ``<output_dir>.checkpoints`` has one of every quarter of a
    pass, from which the same call goes on; its weights at the end are the same as without a stop. Launches that
    divide the model begin again. Processes share each batch; the main one writes.

    Args:
        model: The model; its weights change.
        tokenizer: Its tokenizer.
        env: A Gymnasium id or a function, as for the trainer. Where a model learns for another environment than this
            one (`TextEnv.learnt_for`), ``play.json`` names that one.
        args: Limits and format of play, seed, precision.
        config: How demonstrations are played and learned.
        output_dir: Folder for the model, whose ``warm_start.json`` describes the demonstrations. It is returned.
        demonstrations: Episodes in this tokenizer's tokens (`demonstrations.demonstrations_from`) instead of oracle
            play. ``config`` then only says how they are learned.

    Raises:
        OptionError: If there is no episode to learn from, or one without tokens; if observations are pictures,
            processes cannot share a batch evenly, or ``output_dir`` holds something other than a warm start.
    """
    if args.observation == "image":
        raise OptionError(
            "observation is 'image', but a warm start learns from text; take 'text', or begin with a model that sees"
        )
    target = Path(output_dir)
    checkpoints = target.with_name(f"{target.name}.checkpoints")
    ours = (target / MANIFEST).is_file() and read_manifest(target).get("learnt") == "warm_start"
    if target.exists() and not ours and (target.is_file() or any(target.iterdir())):
        raise OptionError(f"{target} holds something other than a warm start, so it is not replaced; name another")
    later = played_later(env, args)
    noise = {"noise": config.noise} if demonstrations is None else {}
    if demonstrations is None:
        demonstrations = demonstrate(env, args, make_chat(tokenizer, make_turns(env, args), args), config)
    if not all(turn.prompt_ids and turn.reply_ids for one in demonstrations for turn in one.turns):
        raise OptionError(
            "a demonstration has a turn without tokens; collect demonstrations with ragen_trl.demonstrations_from and "
            "the chat of the model that learns"
        )
    trainer = _fit(model, tokenizer, args, config, demonstrations, checkpoints)
    if args.process_index == 0:
        unseal(target, {"learnt": "warm_start"})
    trainer.accelerator.wait_for_everyone()
    if config.demo_lora_r:  # saved as an ordinary model
        merged = trainer.accelerator.unwrap_model(trainer.model).merge_and_unload()
        merged.requires_grad_(True)  # PEFT has frozen it
        if args.process_index == 0:
            merged.save_pretrained(target)
            tokenizer.save_pretrained(target)
    else:
        trainer.save_model(str(target))  # with the tokenizer
    trainer.accelerator.wait_for_everyone()
    note: dict[str, Any] = {"demonstrations": len(demonstrations), **noise}
    note |= {"successes": sum(one.success for one in demonstrations), "updates": trainer.state.global_step}
    losses = {row["step"]: row["eval_loss"] for row in trainer.state.log_history if "eval_loss" in row}
    if losses:  # of what was held out, and the update after which the weights were taken
        note |= {"held_out_losses": losses, "best_update": min(losses, key=losses.__getitem__)}
    if args.process_index == 0:
        save_play_options(target, later, args)
        write_atomically(target / "warm_start.json", json.dumps(note, indent=2))
        seal(target, {"learnt": "warm_start", **provenance()})
        shutil.rmtree(checkpoints, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    return target


def _fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    args: StarPOConfig,
    config: WarmStartConfig,
    demonstrations: Sequence[Trajectory],
    folder: Path,
) -> PackedSFTTrainer:
    """Learn, from the last checkpoint in ``folder`` if it is of the same warm start."""
    held_out = math.ceil(config.demo_held_out * len(demonstrations))
    if held_out == len(demonstrations):
        raise OptionError(
            f"demo_held_out={config.demo_held_out} leaves none of {len(demonstrations)} demonstrations to learn from; "
            "lower it (0 holds out nothing), or play or keep more of them"
        )
    chosen = set(np.random.default_rng(args.seed).permutation(len(demonstrations))[:held_out].tolist())
    aside = [one for row, one in enumerate(demonstrations) if row in chosen]
    learnt = to_examples([one for row, one in enumerate(demonstrations) if row not in chosen])
    settings = {**asdict(config), "seed": args.seed, "bf16": args.bf16, "processes": args.world_size}
    begun = _digest(model, demonstrations, settings)
    routes = getattr(model.config, "output_router_logits", None)
    trainer = PackedSFTTrainer(
        model,
        args=_sft_config(folder, args, config, len(learnt)),
        train_dataset=learnt,
        eval_dataset=to_examples(aside) if aside else None,
        processing_class=tokenizer,
        callbacks=[EarlyStoppingCallback(_PATIENCE)] if aside else None,
        peft_config=lora(config.demo_lora_r, config.demo_lora_r),
    )
    divided = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    if divided and not aside:  # nobody would go on from its checkpoints
        trainer.args.save_strategy = SaveStrategy.NO
    if args.process_index == 0:
        note = folder / "begun"
        if divided or not note.exists() or note.read_text(encoding="utf-8") != begun:
            shutil.rmtree(folder, ignore_errors=True)
            write_atomically(note, begun)
    trainer.accelerator.wait_for_everyone()
    checkpoint = None if divided else last_whole_checkpoint(folder)
    show_metrics(trainer, "loss", "mean_token_accuracy")
    trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    if routes is not None:  # TRL has switched it on, and it would be saved
        model.config.output_router_logits = routes
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
        restore_callback_states_from_checkpoint=True,  # patience
        logging_steps=10,
        report_to="none",
        ddp_find_unused_parameters=False,
        **{name: getattr(args, name) for name in _OF_THE_RUN},
    )
    use_one_device(settings)
    return settings


def _digest(model: PreTrainedModel, demonstrations: Sequence[Trajectory], settings: Mapping[str, Any]) -> str:
    """SHA-256 of what a warm start comes from: the model before the first update, the demonstrations, the settings."""
    known = {**settings, "model": model.config.to_dict()}
    found = sha256(json.dumps(known, sort_keys=True, default=str).encode())
    for name, value in model.named_parameters():
        hash_weight(found, name, value.detach())
    for segment in (segment for trajectory in demonstrations for segment in trajectory.segments):
        found.update(repr((segment.token_ids, segment.action_mask)).encode())
    return found.hexdigest()
