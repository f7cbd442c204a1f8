"""A vision model of 0.2 M parameters, environments that it sees, and what a full pass over an episode computes."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vision import PictureProcessor, VisionPolicy, picture_processor
from ragen_trl.rollout.environments import EnvPool, EnvSpec, make_chat
from ragen_trl.rollout.interfaces import Start
from ragen_trl.trajectory import Trajectory
from tests.support.ragen_trl.tiny_vision import build_tiny_vision_model, build_tiny_vision_tokenizer
from tests.support.ragen_trl.trainers import SMALL, AnyReply, Lottery

TOKENIZER = build_tiny_vision_tokenizer()
SOKOBAN = "ragen/Sokoban-v0"
SEEING: dict[str, Any] = {**SMALL, "observation": "image", "image_size": 56, "max_completion_length": 400}


def vision_model(seed: int = 0, family: str = "2.5") -> PreTrainedModel:
    return build_tiny_vision_model(TOKENIZER, seed, family=family)


def vision_config(folder: Path, config: type[StarPOConfig] = StarPOConfig, **changes: Any) -> StarPOConfig:
    return config(output_dir=str(folder), **{**SEEING, **changes})


def vision_trainer(
    folder: Path,
    env: Any = SOKOBAN,
    config: type[StarPOConfig] = StarPOConfig,
    model: Any = None,
    peft_config: Any = None,
    **changes: Any,
) -> StarPOTrainer:
    """A trainer of the small vision model; ``changes`` are options."""
    args = vision_config(folder, config, **changes)
    return StarPOTrainer(model or vision_model(), env, args, processing_class=TOKENIZER, peft_config=peft_config)


def processor_of(model: PreTrainedModel) -> PictureProcessor:
    made, _ = picture_processor(model, vision_config(Path("unused")), TOKENIZER)
    assert made is not None
    return made


def play_seeing(
    model: PreTrainedModel, folder: Path, seeds: list[int], env: str = SOKOBAN, temperature: float = 1.0, **changes: Any
) -> list[Trajectory]:
    """Episodes of the model, sampled with a kept KV cache; the n-th has sampling seed n."""
    args = vision_config(folder, **changes)
    pool, processor = EnvPool(args), processor_of(model)
    envs = pool.take([EnvSpec(env)] * len(seeds))
    chat = make_chat(TOKENIZER, envs[0], args, processor.text)
    policy = VisionPolicy(model, chat, Sampling(args.max_reply_length, temperature), processor)
    return pool.play(envs, policy, [Start(seed, seed, place) for place, seed in enumerate(seeds)])


def full_pass(model: PreTrainedModel, trajectory: Trajectory) -> torch.Tensor:
    """(T,) log-probabilities of an episode's sampled tokens, in one pass with the positions of Transformers."""
    ids = torch.tensor([trajectory.token_ids])
    ids, seen = processor_of(model).inputs(ids, torch.ones_like(ids), [trajectory.pictures])
    seen.pop("num_images", None)
    with torch.no_grad():
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids), **seen).logits
    scores = logits[0, :-1].log_softmax(-1).gather(-1, ids[0, 1:, None]).squeeze(-1)
    return scores[torch.tensor(trajectory.action_mask[1:]).bool()]


def sampled(trajectory: Trajectory) -> torch.Tensor:
    """(T,) the log-probabilities that the sampler reported."""
    return torch.tensor([value for turn in trajectory.turns for value in turn.logprobs])


class Frames(Lottery):
    """A lottery with a picture of noise, another one in every state; some episodes are shorter than others."""

    def __init__(self, draws: int) -> None:
        super().__init__(draws=draws)
        self.render_mode = "rgb_array"

    def _start(self, options: Any) -> str:
        self._noise = int(self.np_random.integers(1_000_000))
        return super()._start(options)

    def _picture(self) -> Any:
        return np.random.default_rng([self._noise, self.drawn]).integers(0, 256, (56, 56, 3), np.uint8)


def frames(draws: int = 3) -> AnyReply:
    """Episodes of up to so many frames, in which every reply is an action."""
    return AnyReply(
        Frames(draws),
        think=False,
        max_turns=draws,
        max_actions=99,
        max_actions_per_turn=1,
        observation="image",
        image_size=56,
    )
