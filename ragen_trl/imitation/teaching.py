"""What a warm start learns from: an oracle's episodes, and its replies in the states of the model's own episodes."""

from collections.abc import Callable, Sequence
from typing import Any

import gymnasium
from accelerate.utils import gather_object
from datasets import Dataset

from ragen_trl.config.options import WarmStartConfig
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.evaluation.evaluator import play_in_batches
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.interfaces import Policy, Start
from ragen_trl.rollout.seeds import WARM_START
from ragen_trl.rollout.teacher import Taught, Teacher, corrections
from ragen_trl.system.progress import progress_bar
from ragen_trl.trajectory import Trajectory

Env = str | Callable[[], gymnasium.Env[str, str]]
Example = dict[str, list[list[int]]]
"""What is learnt from an episode: ``input_ids`` and ``labels`` of one or more sequences, -100 where nothing is."""


def demonstrate(env: Env, args: StarPOConfig, chat: Chat, config: WarmStartConfig, seeds: range) -> list[Trajectory]:
    """Play episodes of a noisy oracle; ``seeds`` count from the first of warm starts, which nothing else uses.

    All processes play the same episodes. One that fails in its environment on any of them is left out on all.
    """
    teacher = Teacher(args, chat, config.demo_actions_per_turn, config.noise)
    trajectories: list[Trajectory] = []
    policy, starts = ScriptedPolicy(teacher, chat), _starts(args, seeds)
    with progress_bar(len(starts), "demonstrations", "episode") as bar:
        for batch in play_in_batches(policy, env, args, starts):
            trajectories += batch
            bar.update(len(batch))
    failed = set(gather_object([one.seed for one in trajectories if one.limit in FAILURES]))
    return [one for one in trajectories if one.seed not in failed]


def correct(
    player: Policy, env: Env, args: StarPOConfig, config: WarmStartConfig, seeds: range
) -> tuple[list[Example], int]:
    """Let a model play, on all processes together, and say at each of its turns what the oracle would have replied.

    ``seeds`` count from the first seed of warm starts. Returned are the examples of all episodes in their order, the
    same on every process, and the number of successes. Episodes that fail in their environment are left out, and those
    in which no reply of the oracle fits into the model's context.
    """
    assert player.chat is not None
    process, processes = args.process_index, args.world_size
    teacher = Teacher(args, player.chat, config.demo_actions_per_turn)
    policy, starts = Taught(player, teacher), _starts(args, seeds)
    found: list[tuple[int, bool, Example]] = []
    with progress_bar(len(starts), "corrections", "episode") as bar:
        for batch in play_in_batches(policy, env, args, starts, process, processes):
            for one in batch:
                if told := corrections(one):
                    found.append((one.seed, one.success, example(*told)))
            bar.update(len(batch) * processes)
    everyone = sorted(gather_object(found), key=lambda one: one[0])
    return [told for *_, told in everyone], sum(success for _, success, _ in everyone)


def example(*trajectories: Trajectory) -> Example:
    """An episode, or several as one, whose replies are learnt: a sequence for each of their `segments`."""
    rows = [segment for one in trajectories for segment in one.segments]
    labels = [
        [token if sampled else -100 for token, sampled in zip(row.token_ids, row.action_mask, strict=True)]
        for row in rows
    ]
    return {"input_ids": [list(row.token_ids) for row in rows], "labels": labels}


def to_dataset(examples: Sequence[Example]) -> Dataset:
    """The examples for ``SFTTrainer``, a row for each episode."""
    return Dataset.from_dict({name: [one[name] for one in examples] for name in ("input_ids", "labels")})


def sequences(episodes: Sequence[Example]) -> list[dict[str, Any]]:
    """The token sequences of some episodes, a row for each: what TRL's collator pads."""
    return [
        {"input_ids": ids, "labels": labels}
        for episode in episodes
        for ids, labels in zip(episode["input_ids"], episode["labels"], strict=True)
    ]


def _starts(args: StarPOConfig, seeds: range) -> list[Start]:
    return [Start.drawn(WARM_START + seed, (args.seed, WARM_START + seed)) for seed in seeds]
