"""A warm start for models that see: lessons on pictures, then episodes that a script played.

A lesson is a picture of a lake and a line about it: what is where, each number of which must be looked up, or a good
move. An episode asks as much in twenty times as many tokens. TRL's ``SFTTrainer``, which the package's warm start uses,
takes no token ids with pictures; so this is a plain loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import gymnasium
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, get_cosine_schedule_with_warmup

from ragen_envs.oracles import plan
from ragen_envs.pictures.frames import on_square
from ragen_trl.batching.batch import collate
from ragen_trl.batching.pictures import picture_inputs
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.evaluation.picture_controls import blank
from ragen_trl.imitation.demonstrations import in_tokens_of
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.vision.processing import PictureProcessor
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_pool import EnvPool
from ragen_trl.rollout.env_specs import EnvSpec
from ragen_trl.rollout.interfaces import Start
from ragen_trl.trajectory import Picture, Trajectory, Turn

_NAMES = {"P": "player", "G": "goal", "O": "hole"}
_MOVES = 5  # that an episode allows
_WARM_UP = 0.1  # of the steps; from there on the rate falls to 0


def described(state: str) -> str:
    r"""Where things are on a lake's map, in reading order of their kinds.

    Example:
        >>> described("_P_\nO__\n__G")
        'player (0, 1), goal (2, 2), hole (1, 0)'
    """
    lines = enumerate(state.splitlines())
    grid = [(symbol, (row, column)) for row, line in lines for column, symbol in enumerate(line)]
    return ", ".join(f"{name} {place}" for kind, name in _NAMES.items() for symbol, place in grid if symbol == kind)


def lessons(
    env_id: str,
    kwargs: Mapping[str, Any],
    side: int,
    processor: PictureProcessor,
    tokenizer: PreTrainedTokenizerBase,
    seeds: Sequence[int],
    noise: float | None = None,
) -> list[Trajectory]:
    """Pictures of start states, each with a line about it, and nothing around them.

    Args:
        env_id: Gymnasium id of a lake.
        kwargs: Its keyword arguments.
        side: Of a picture, in pixels.
        processor: Of the model.
        tokenizer: Of the model.
        seeds: Of the start states.
        noise: How often a move is random that else is the oracle's; unset: lines describe, and name no move.
    """
    env = gymnasium.make(env_id, render_mode="rgb_array", **kwargs)
    told = []
    for seed in seeds:
        state, _ = env.reset(seed=seed)
        picture = Picture(side, side, on_square(np.asarray(env.render()), side).tobytes())
        text = described(state) if noise is None else f"move {_move(env, seed, noise)}"
        prompt = tokenizer(processor.text(picture), add_special_tokens=False).input_ids
        reply = [*tokenizer(f" {text}", add_special_tokens=False).input_ids, tokenizer.eos_token_id]
        turn = Turn(tuple(prompt), tuple(reply), (), observation="", reply=text, reward=0.0, pictures=(picture,))
        told.append(Trajectory((turn,), seed=seed, terminated=True))
    env.close()
    return told


def _move(env: gymnasium.Env[str, str], seed: int, noise: float) -> str:
    return plan(env, actions_left=_MOVES, length=1, rng=np.random.default_rng(seed), noise=noise)[0]


def demonstrated(
    script: ScriptedPolicy, spec: EnvSpec, args: StarPOConfig, chat: Chat, seeds: Sequence[int]
) -> list[Trajectory]:
    """Episodes of a script, in the tokens that the model would have sampled."""
    pool = EnvPool(args)
    played = pool.play(pool.take([spec] * len(seeds)), script, [Start(seed, seed, seed) for seed in seeds])
    pool.close()
    told = [in_tokens_of(chat, trajectory) for trajectory in played]
    return [trajectory for trajectory in told if trajectory is not None]


def imitate(
    model: PreTrainedModel,
    episodes: Sequence[Trajectory],
    processor: PictureProcessor,
    steps: int,
    learning_rate: float = 1e-3,
    batch_size: int = 16,
    seed: int = 0,
) -> list[float]:
    """Train on the replies of episodes or lessons; returns the loss of each step, in nats a token."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    schedule = get_cosine_schedule_with_warmup(optimizer, round(_WARM_UP * steps), steps)
    random = torch.Generator().manual_seed(seed)
    losses = []
    model.train()
    for _ in range(steps):
        chosen = torch.randperm(len(episodes), generator=random)[:batch_size].tolist()
        logits, asked = _scored(model, [episodes[index] for index in chosen], processor)
        loss = torch.nn.functional.cross_entropy(logits, asked)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    model.eval()
    return losses


def places_right(
    model: PreTrainedModel,
    told: Sequence[Trajectory],
    processor: PictureProcessor,
    tokenizer: PreTrainedTokenizerBase,
    is_blank: bool = False,
) -> float:
    """The share of the numbers in descriptions that the model thinks most probable, given what is before them.

    Args:
        model: The model.
        told: Lessons that it has not learnt from.
        processor: Of the model.
        tokenizer: Of the model.
        is_blank: Whether it is shown grey pictures instead.
    """
    if is_blank:
        told = [replace(one, turns=(replace(one.turns[0], pictures=(blank(one.pictures[0]),)),)) for one in told]
    with torch.no_grad():
        logits, asked = _scored(model, told, processor)
    number = torch.tensor([tokenizer.decode([token]).strip().isdigit() for token in asked.tolist()])
    return float((logits.argmax(dim=-1) == asked)[number].float().mean())


def _scored(
    model: PreTrainedModel, episodes: Sequence[Trajectory], processor: PictureProcessor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (n, V) of the tokens of all replies, and these tokens (n,)."""
    rows = collate(episodes, processor.pad_id)
    ids, attention = rows["input_ids"], rows["attention_mask"]
    tokens, seen = picture_inputs(ids, attention, [one.pictures for one in episodes], processor)
    seen.pop("num_images", None)
    logits = model(input_ids=tokens, attention_mask=attention, **seen).logits[:, :-1]
    asked = rows["action_mask"][:, 1:].bool()
    return logits[asked], ids[:, 1:][asked]
