"""Options of the commands beside the training options. Does not import torch, so ``--help`` is quick."""

from dataclasses import dataclass
from typing import Any

from ragen_trl.config.play import option


@dataclass
class ModelArguments:
    """Which model plays what."""

    env: str = option("ragen/FrozenLake-v0", "Gymnasium id of the environment.")
    algo: str = option("starpo-s", "'starpo-s', 'starpo' (--advantage says in which form) or 'a-star-po'.")
    model: str | None = option(
        None, "Folder, hub id or GGUF file of a causal LM; unset: the embedded Qwen2, warm-started first."
    )


@dataclass
class WarmStartArguments(ModelArguments):
    """Whose first steps are learnt from demonstrations, and where."""

    overwrite: bool = option(False, "Replace an earlier warm start in the output folder.")


@dataclass
class RunArguments(ModelArguments):
    """What a run does; how it trains is in the training configuration."""

    eval_episodes: int = option(512, "Held-out start states of each evaluation.")
    eval_temperature: float = option(1.0, "Sampling temperature of the evaluations.")
    preset: str | None = option(None, "Published settings in place of the defaults; the presets are listed below.")
    eval_env_kwargs: dict[str, Any] | str | None = option(
        None,
        "Arguments (JSON) that replace some of env_kwargs where the model is evaluated; unset: a held-out split, where "
        "the environment has one for what is trained on.",
    )
    consistency_weight: float | None = option(
        None, "λ of the bonus, 0 to 0.2, for actions that follow from the thoughts; unset: none."
    )
    lora_r: int = option(0, "LoRA rank; 0 trains all weights.")
    lora_alpha: int = option(64, "LoRA scaling numerator.")
    monitor: str = option(
        "warn", "What alerts of collapse do: 'warn', 'stop', 'rollback' to the best checkpoint, or 'off'."
    )
    record_rollouts: int = option(20, "Rollouts that the report's viewer can show, spread over the run; 0: none.")
    overwrite: bool = option(False, "Delete what the run folder holds and start again.")
    num_processes: int = option(1, "Processes to train on, started by this command; accelerate launch starts its own.")


@dataclass
class EvaluationArguments:
    """What is evaluated, on what, and how often."""

    env: list[str] = option(
        [],
        "Gymnasium ids, with arguments as JSON if you like: 'ragen/Sokoban-v0:{\"num_boxes\": 2}'. "
        "Unset: the one that the model was trained in.",
    )
    suite: str | None = option(
        None,
        "Instead of --env. 'sokoban': Sokoban, SokobanLarge, Sokoban in other symbols, FrozenLake; "
        "'bandit': Bandit, BanditRev.",
    )
    model: list[str] = option([], "Folders or hub ids of causal LMs. Unset: random and oracle only.")
    algo: str = option("starpo-s", "Algorithm of a training file that --config reads; else unused.")
    episodes: int = option(
        512, "Held-out start states, at most 8000; of ToyShop its 256 prompts.", aliases=["--eval_episodes"]
    )
    samples_per_start: int = option(1, "Episodes from each start state; with several there is pass@k.")
    eval_temperature: float = option(1.0, "Sampling temperature; 0 is greedy.")
    side_by_side: int = option(128, "Episodes played and saved at a time; fewer take less memory.")
    overwrite: bool = option(False, "Delete an older evaluation in the output folder first.")


@dataclass
class ApiArguments:
    """Which model behind an OpenAI-compatible server is evaluated. The key comes from OPENAI_API_KEY only."""

    api_model: str | None = option(None, "Name of a model at an OpenAI-compatible server.")
    api_base: str | None = option(None, "Its base URL; unset: OPENAI_BASE_URL.")
    api_cache: str | None = option(None, "File that keeps its answers; unset: api_cache.sqlite in the output folder.")
    api_concurrency: int = option(16, "Requests at a time.")
    api_timeout: float = option(120.0, "Seconds that an attempt waits for an answer.")
    api_retries: int = option(6, "Repetitions of a request after 429, 5xx and timeouts.")
    api_leave_out: list[str] = option([], "Fields that the server refuses, among seed, temperature, top_p.")
    api_token_limit: str = option("max_tokens", "'max_tokens', or 'max_completion_tokens' for reasoning models.")
    api_prompt_price: float | None = option(None, "Price of a million tokens sent.")
    api_completion_price: float | None = option(None, "Price of a million tokens written.")
