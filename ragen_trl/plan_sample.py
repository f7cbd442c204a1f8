"""What a plan looks at beforehand: the model's tokenizer and configuration, and a few episodes of random play.

Left out: weights, which are never read, and replies of a model.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from transformers import AutoConfig, AutoTokenizer, PretrainedConfig, PreTrainedTokenizerBase

from ragen_envs import AgentTurns, NoOracleError, random_action
from ragen_trl.config import StarPOConfig
from ragen_trl.env_pool import EnvPool, env_specs
from ragen_trl.environments import make_chat, make_turns
from ragen_trl.model_loading import ModelNotFoundError, check_model
from ragen_trl.policies import ScriptedPolicy
from ragen_trl.rollout import Start, TurnEnv
from ragen_trl.seeds import WARM_START
from ragen_trl.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.trajectory import Trajectory

_SAMPLE_EPISODES = 8


def read_model(name: str | None, env: str) -> tuple[PreTrainedTokenizerBase | None, PretrainedConfig | None]:
    """Tokenizer and configuration, without weights; ``None`` for what only the hub has.

    Args:
        name: Folder or hub id; ``None`` for the embedded model.
        env: Gymnasium id, whose words the embedded tokenizer knows.

    Raises:
        ModelNotFoundError: If a folder is no model.
    """
    if name is None:
        tokenizer = build_tiny_tokenizer(env=env)
        return tokenizer, build_tiny_model(tokenizer).config
    try:
        check_model(name)
    except ModelNotFoundError as error:
        if error.__cause__ is None:  # a folder that is wrong; the hub's failures have a cause
            raise
        return None, None
    path = Path(name).expanduser()
    adapter = path / "adapter_config.json"
    base = name
    if adapter.is_file():
        base = json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"]
    try:
        tokenizer = AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError):
        tokenizer = None
    return tokenizer, AutoConfig.from_pretrained(base)


def sample_episodes(env: str, args: StarPOConfig, tokenizer: PreTrainedTokenizerBase | None) -> Sequence[Trajectory]:
    """A few episodes of random actions in the model's tokens; none where tokenizer or random actions are missing."""
    if tokenizer is None:
        return []

    def script(turns: TurnEnv, random: np.random.Generator) -> str:
        assert isinstance(turns, AgentTurns)
        return turns.format_reply([random_action(turns, random)])

    policy = ScriptedPolicy(script, make_chat(tokenizer, make_turns(env, args), args))
    pool = EnvPool(args)
    starts = [Start.drawn(seed, (args.seed, seed)) for seed in range(WARM_START, WARM_START + _SAMPLE_EPISODES)]
    try:
        return list(pool.play(pool.take(env_specs(env, args) * len(starts)), policy, starts))
    except NoOracleError:
        return []
    finally:
        pool.close()


def longest_trajectory(args: StarPOConfig, episodes: Sequence[Trajectory], known: int | None) -> int:
    """Tokens of the longest trajectory that is likely: what was shown at most and the longest replies.

    Args:
        args: Its limits, which are never passed.
        episodes: As `sample_episodes` plays them; without any, the limits alone count.
        known: Positions that the model knows, if it says so.
    """
    shown = [sum(len(turn.prompt_ids) for turn in one.turns) for one in episodes]
    first = [len(one.turns[0].prompt_ids) for one in episodes]
    limit = max(first, default=0) + (args.max_completion_length or 0)
    likely = max(shown) + args.max_turns * args.max_reply_length if shown else limit
    return min(limit, likely, known or limit)
