"""A saved model that plays again: with the options that it was trained with, sampling as training does."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_trl.config.starpo import StarPOConfig, StarPOSConfig
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.env_specs import EnvMaker
from ragen_trl.rollout.environments import load_play_options, make_chat, make_turns


def options_of(run: Path) -> StarPOSConfig:
    """Turn limits and reply format of the finished run in a folder of ``make train``."""
    played_as = load_play_options(str(run / "model"))
    return StarPOSConfig(output_dir=str(run), **{key: value for key, value in played_as.items() if key != "env"})


def saved_policy(
    model: str | Path, env: str | EnvMaker, args: StarPOConfig, temperature: float = 1.0
) -> TransformersPolicy:
    """A saved model as a policy, on the GPU where there is one."""
    chat = make_chat(AutoTokenizer.from_pretrained(model), make_turns(env, args), args)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded = AutoModelForCausalLM.from_pretrained(model).to(device)
    return TransformersPolicy(loaded, chat, Sampling(args.max_reply_length, temperature))
