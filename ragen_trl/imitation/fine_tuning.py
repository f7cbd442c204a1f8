"""Warm start: supervised fine-tuning before RL, on an oracle's episodes and then on the model's own.

Episodes are played by the loop that trains later, so prompts, masks and token ids are the same as in rollouts. In the
first round the model learns from a noisy oracle's replies. In each further round (``demo_rounds``) the model plays, and
learns at every turn of its own episodes what the oracle would have replied there, as in DAgger (arXiv 1011.0686), but
from the episodes of the round alone: each is learnt once.

TRL's ``SFTTrainer`` learns. A warm start that was stopped goes on from its last checkpoint, if it is the same warm
start: a digest tells, of the examples token for token, the weights that a round begins with, and how it learns.
"""

import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, SaveStrategy
from trl import SFTConfig, SFTTrainer

from ragen_trl.batching.shared_prefixes import PackedModel
from ragen_trl.config.options import WarmStartConfig
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError
from ragen_trl.imitation.teaching import Env, Example, correct, demonstrate, example, sequences, to_dataset
from ragen_trl.policies.models import lora
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vision import local_policy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import make_chat, make_turns, played_later, save_play_options
from ragen_trl.rollout.interfaces import Policy
from ragen_trl.system.atomic import MANIFEST, read_manifest, seal, unseal, write_atomically, writing
from ragen_trl.system.processes import one_writer
from ragen_trl.system.progress import show_metrics
from ragen_trl.system.provenance import provenance
from ragen_trl.training.checkpoints import facts_of, finish_checkpoint, last_whole_checkpoint
from ragen_trl.training.launch import use_one_device
from ragen_trl.training.reference import hash_weight
from ragen_trl.training.scoring import can_share_prefixes, without_wrappers
from ragen_trl.trajectory import Trajectory

logger = logging.getLogger(__name__)

_SAVES_OF_A_PASS = 4  # how often a pass is saved
_OF_THE_RUN = ("seed", "bf16", "use_cpu", "ddp_backend", "ddp_timeout", "dataloader_pin_memory")


class PackedSFTTrainer(SFTTrainer):  # type: ignore[misc]
    """TRL's ``SFTTrainer`` with sequences stored as prefix trees; a model that cannot be packed is trained as TRL does.

    A row of its data set is an episode, of one or more sequences. All of an environment begin with its instruction, all
    of an episode with its first turns, and only replies are learnt, so most of what TRL would compute is the same in
    every sequence or not asked for. Relies on ``compute_loss`` calling the model once, with ``fused_lm_head=True``, and
    reading ``log_probs``, ``entropy``, ``is_top1`` and ``label_mask``; and on the collator padding what it is given.
    """

    data_collator: Callable[[list[Any]], Any]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._shares_prefixes = can_share_prefixes(self, self.aux_loss_enabled)
        self._facts = facts_of(self)
        collate = self.data_collator
        self.data_collator = lambda episodes: collate(sequences(episodes))

    def _prepare_for_training(self, max_steps: int, train_dataloader: Any, resume_from_checkpoint: Any) -> Any:
        prepared = super()._prepare_for_training(max_steps, train_dataloader, resume_from_checkpoint)
        done = self.state.global_step >= max_steps  # where Transformers would take one more step
        return (prepared[0], DataLoader([])) if done else prepared

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self.args.output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        with writing(folder):
            super()._save_checkpoint(model, trial)
            finish_checkpoint(self, folder, self._facts, limit=1)

    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **options: Any) -> Any:
        """As in TRL."""
        if self._shares_prefixes:
            model = PackedModel(model, without_wrappers(self, model))
        return super().compute_loss(model, inputs, *args, **options)


def warm_start(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    env: Env,
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
        output_dir: Folder for the model. It is returned. Its ``warm_start.json`` has the numbers of ``episodes`` and
            ``successes`` in each round, and of ``updates`` in all.
        demonstrations: Episodes in this tokenizer's tokens (`demonstrations.demonstrations_from`) instead of the
            oracle's, all for the first round.

    Raises:
        OptionError: If there is no episode to learn from, or one without tokens; if observations are pictures,
            processes cannot share a batch evenly, or ``output_dir`` holds something other than a warm start.
        UserError: If another process writes to the same warm start.
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
    with closing(make_turns(env, args)) as turns:
        chat = make_chat(tokenizer, turns, args)
    rounds = 1 + config.demo_rounds
    ends = [config.demonstrations * number // rounds for number in range(rounds + 1)]
    shares = [range(*ends[number : number + 2]) for number in range(rounds)]
    note: dict[str, Any] = {} if demonstrations is not None else {"noise": config.noise}
    settings = {**asdict(config), "model": model.config.to_dict(), "seed": args.seed, "bf16": args.bf16}
    settings["processes"] = args.world_size
    with one_writer(checkpoints):
        if demonstrations is None:
            demonstrations = demonstrate(env, args, chat, config, shares[0])
        if not all(turn.prompt_ids and turn.reply_ids for one in demonstrations for turn in one.turns):
            raise OptionError(
                "a demonstration has a turn without tokens; collect demonstrations with ragen_trl.demonstrations_from "
                "and the chat of the model that learns"
            )
        episodes, successes = [len(demonstrations)], [sum(one.success for one in demonstrations)]
        if successes == [0]:
            told = "lower noise, raise max_turns or max_actions, or see why the oracle fails: python -m ragen_envs play"
            logger.warning("none of the %d demonstrations solves the task; %s", episodes[0], told)
        examples = [example(one) for one in demonstrations]
        trainer = _fit(model, tokenizer, args, config, examples, settings, checkpoints / "round-0")
        updates = trainer.state.global_step
        for number, seeds in enumerate(shares[1:], 1):
            model = _learnt(trainer)
            trainer.accelerator.free_memory()
            del trainer  # with its optimizer: the next round has its own
            examples, succeeded = correct(_player(model, chat, args), env, args, config, seeds)
            episodes, successes = [*episodes, len(examples)], [*successes, succeeded]
            trainer = _fit(model, tokenizer, args, config, examples, settings, checkpoints / f"round-{number}")
            updates += trainer.state.global_step
        note = {"episodes": episodes, **note, "successes": successes, "updates": updates}
        if args.process_index == 0:
            unseal(target, {"learnt": "warm_start"})
        trainer.accelerator.wait_for_everyone()
        with writing(target):
            if config.demo_lora_r:  # saved as an ordinary model
                merged = _learnt(trainer)
                if args.process_index == 0:
                    merged.save_pretrained(target)
                    tokenizer.save_pretrained(target)
            else:
                trainer.save_model(str(target))  # with the tokenizer
        trainer.accelerator.wait_for_everyone()
        if args.process_index == 0:
            save_play_options(target, later, args)
            write_atomically(target / "warm_start.json", json.dumps(note, indent=2))
            seal(target, {"learnt": "warm_start", **provenance()})
            shutil.rmtree(checkpoints, ignore_errors=True)
        trainer.accelerator.wait_for_everyone()
    return target


def _learnt(trainer: PackedSFTTrainer) -> PreTrainedModel:
    """The model without wrappers, with what an adapter has learnt in its weights."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    if isinstance(model, PeftModel):
        model = model.merge_and_unload()
        model.requires_grad_(True)  # PEFT has frozen it
    return model


def _player(model: PreTrainedModel, chat: Chat, args: StarPOConfig) -> Policy:
    """The model as it samples in training."""
    autocast = partial(torch.autocast, model.device.type, torch.bfloat16, enabled=bool(args.bf16))
    return local_policy(model, chat, Sampling.of(args, args.temperature), autocast, None)


def _fit(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    args: StarPOConfig,
    config: WarmStartConfig,
    examples: Sequence[Example],
    settings: Mapping[str, Any],
    folder: Path,
) -> PackedSFTTrainer:
    """Learn a round, from the last checkpoint in ``folder`` if it is of the same warm start."""
    if not examples:
        raise OptionError("there is no episode to learn from; raise demonstrations, or lower demo_rounds")
    begun = _digest(model, examples, settings)
    before = {name: getattr(model.config, name, None) for name in ("use_cache", "output_router_logits")}
    trainer = PackedSFTTrainer(
        model,
        args=_sft_config(folder, args, config, len(examples)),
        train_dataset=to_dataset(examples),
        processing_class=tokenizer,
        peft_config=lora(config.demo_lora_r, config.demo_lora_r),
    )
    divided = trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled
    if divided and config.demo_rounds:
        raise OptionError("demo_rounds needs whole weights to play between updates; launch with DDP, or set it to 0")
    if divided:  # nobody would go on from its checkpoints
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
    for name, value in before.items():  # switched while training, and it would be saved
        if value is not None:
            setattr(model.config, name, value)
    return trainer


def _sft_config(folder: Path, args: StarPOConfig, config: WarmStartConfig, episodes: int) -> SFTConfig:
    each, left = divmod(config.demo_batch_size, args.world_size)
    if left:
        raise OptionError(
            f"demo_batch_size is {config.demo_batch_size}, which {args.world_size} processes cannot share evenly; give "
            "a multiple of them"
        )
    of_a_pass = math.ceil(episodes / config.demo_batch_size)
    settings = SFTConfig(
        output_dir=str(folder),
        per_device_train_batch_size=each,
        learning_rate=config.demo_learning_rate,
        num_train_epochs=config.demo_epochs,
        lr_scheduler_type="cosine",
        warmup_steps=min(20, math.ceil(0.1 * of_a_pass * config.demo_epochs)),
        adam_beta2=0.99,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        gradient_checkpointing=False,
        save_strategy="steps",
        save_steps=math.ceil(of_a_pass / _SAVES_OF_A_PASS),
        logging_steps=10,
        report_to="none",
        ddp_find_unused_parameters=False,
        **{name: getattr(args, name) for name in _OF_THE_RUN},
    )
    use_one_device(settings)
    return settings


def _digest(model: PreTrainedModel, examples: Sequence[Example], settings: Mapping[str, Any]) -> str:
    """SHA-256 of what a round comes from: the weights before its first update, the examples, the settings."""
    found = sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for name, value in model.named_parameters():
        hash_weight(found, name, value.detach())
    for one in examples:
        found.update(repr((one["input_ids"], one["labels"])).encode())
    return found.hexdigest()
