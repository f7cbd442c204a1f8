"""What a warm start learns from: an oracle's episodes, and its replies in the states of the model's own episodes.

An oracle that only shows its own episodes says nothing about the states that a model gets itself into. Ours knows the
best action in any state, so it can be asked at every turn that the model plays.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import gymnasium
import numpy as np
from accelerate.utils import gather_object
from datasets import Dataset

from ragen_envs import AgentTurns, NoOracleError, ToolTurns, demonstration, explain
from ragen_trl.config.options import WarmStartConfig
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.evaluation.evaluator import play_in_batches
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_executor import FAILURES
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start, TurnEnv
from ragen_trl.rollout.seeds import WARM_START
from ragen_trl.system.progress import progress_bar
from ragen_trl.trajectory import Trajectory

Env = str | Callable[[], gymnasium.Env[str, str]]
Example = dict[str, list[list[int]]]
"""What is learnt from an episode: ``input_ids`` and ``labels`` of one or more sequences, -100 where nothing is."""


class Teacher:
    """Writes an oracle's reply in the present state of an environment, with a probability of mistakes.

    Where replies have thoughts, `ragen_envs.explain` gives them. A thought stays empty in an environment that explains
    nothing, and in a reply that would be longer than ``max_reply_length`` tokens with it.
    """

    def __init__(self, args: StarPOConfig, chat: Chat, config: WarmStartConfig, noise: float) -> None:
        self._args, self._chat, self._noise = args, chat, noise
        self._actions = min(args.max_actions_per_turn, config.demo_actions_per_turn)

    def __call__(self, turns: TurnEnv, random: np.random.Generator) -> str:
        """The reply; ``random`` draws mistakes, imagined outcomes and words."""
        assert isinstance(turns, AgentTurns)
        actions = demonstration(turns, turns.actions_left, self._actions, random, self._noise)
        reply = turns.format_reply(actions)
        if not turns.reply_format.think:
            return reply
        with suppress(NoOracleError):
            explained = turns.format_reply(actions, explain(turns, actions, random.spawn(1)[0]))
            if len(self._chat.encode_reply(explained)) <= self._args.max_reply_length:
                return explained
        return reply

    def write_calls_as_learnt(self, turns: AgentTurns) -> None:
        """Let an environment of function calls read and write them as the model's template does."""
        if isinstance(turns, ToolTurns):
            turns.call_format = self._chat.call_format


def demonstrate(env: Env, args: StarPOConfig, chat: Chat, config: WarmStartConfig, seeds: range) -> list[Trajectory]:
    """Play episodes of a noisy oracle; ``seeds`` count from the first of warm starts, which nothing else uses.

    All processes play the same episodes. One that fails in its environment on any of them is left out on all.
    """
    teacher = Teacher(args, chat, config, config.noise)
    trajectories: list[Trajectory] = []
    policy, starts = ScriptedPolicy(teacher, chat), _starts(args, seeds)
    with progress_bar(len(starts), "demonstrations", "episode") as bar:
        for batch in play_in_batches(policy, env, args, starts, adapt=teacher.write_calls_as_learnt):
            trajectories += batch
            bar.update(len(batch))
    failed = set(gather_object([one.seed for one in trajectories if one.limit in FAILURES]))
    return [one for one in trajectories if one.seed not in failed]


class Listening(Policy):
    """Another policy, whose replies a subclass listens to."""

    def __init__(self, player: Policy) -> None:
        self._player = player
        self.chat, self.max_context = player.chat, player.max_context

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`."""
        self._player.begin(seeds)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`."""
        return self._player.reply(requests)

    def end(self, rows: Sequence[int]) -> None:
        """As `Policy.end`."""
        self._player.end(rows)

    def goes_on(self, playing: bool) -> bool:
        """As `Policy.goes_on`."""
        return self._player.goes_on(playing)


class Corrected(Listening):
    """A policy that plays while a teacher writes, at each of its turns, what it should have replied.

    ``corrections`` has the texts for each row since `begin`, one a turn.
    """

    def __init__(self, player: Policy, teacher: Teacher) -> None:
        super().__init__(player)
        self._teacher = teacher
        self.corrections: list[list[str]] = []
        self._random: list[np.random.Generator] = []

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`."""
        super().begin(seeds)
        self.corrections = [[] for _ in seeds]
        self._random = [np.random.default_rng(seed) for seed in seeds]

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`; the teacher answers first, in the state that the player's reply will change."""
        for request in requests:
            self.corrections[request.row].append(self._teacher(request.env, self._random[request.row]))
        return super().reply(requests)


def correct(
    player: Policy, env: Env, args: StarPOConfig, config: WarmStartConfig, seeds: range
) -> tuple[list[Example], int]:
    """Let a model play, on all processes together, and say at each of its turns what the oracle would have replied.

    ``seeds`` count from the first seed of warm starts. Returned are the examples of all episodes in their order, the
    same on every process, and the number of successes. Episodes that fail in their environment are left out.
    """
    assert player.chat is not None
    process, processes = args.process_index, args.world_size
    chat, teacher = player.chat, Teacher(args, player.chat, config, noise=0.0)
    policy, starts = Corrected(player, teacher), _starts(args, seeds)
    found: list[tuple[int, bool, Example]] = []
    with progress_bar(len(starts), "corrections", "episode") as bar:
        for batch in play_in_batches(policy, env, args, starts, process, processes, teacher.write_calls_as_learnt):
            for one, texts in zip(batch, policy.corrections, strict=True):
                if one.limit not in FAILURES:
                    replies = [chat.encode_reply(text) for text in texts]
                    found.append((one.seed, one.success, corrected_example(one, replies, player.max_context)))
            bar.update(len(batch) * processes)
    everyone = sorted(gather_object(found), key=lambda one: one[0])
    return [example for *_, example in everyone], sum(success for _, success, _ in everyone)


def example(trajectory: Trajectory) -> Example:
    """An episode whose own replies are learnt: a sequence for each of its `segments`."""
    rows = trajectory.segments
    labels = [
        [token if sampled else -100 for token, sampled in zip(row.token_ids, row.action_mask, strict=True)]
        for row in rows
    ]
    return {"input_ids": [list(row.token_ids) for row in rows], "labels": labels}


def corrected_example(
    trajectory: Trajectory, replies: Iterable[Sequence[int]], max_context: int | None = None
) -> Example:
    """An episode of which other replies are learnt, one a turn: a sequence for each, after what the model had read.

    A reply is left out where the model, which reads at most ``max_context`` tokens, could not have written it.
    """
    found: Example = {"input_ids": [], "labels": []}
    context: list[int] = []
    for turn, reply in zip(trajectory.turns, replies, strict=True):
        if turn.context_ids is not None:
            context = list(turn.context_ids)
        context += turn.prompt_ids
        if max_context is None or len(context) + len(reply) <= max_context:
            found["input_ids"].append([*context, *reply])
            found["labels"].append([-100] * len(context) + list(reply))
        context += turn.reply_ids
    return found


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
