"""The options of ``python -m ragen_trl eval`` that are no options of training; ``eval_plan.py`` reads both."""

from dataclasses import dataclass, field


@dataclass
class EvaluationArguments:
    """What is evaluated, on what, and how often."""

    env: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Gymnasium ids, with arguments as JSON if you like: 'ragen/Sokoban-v0:{\"num_boxes\": 2}'. "
            "Unset: the one that the model was trained in."
        },
    )
    suite: str | None = field(
        default=None,
        metadata={
            "help": "In the place of --env. 'sokoban': Sokoban, SokobanLarge, Sokoban in other symbols, FrozenLake; "
            "'bandit': Bandit, BanditRev."
        },
    )
    model: list[str] = field(
        default_factory=list, metadata={"help": "Folders or hub ids of causal LMs. Unset: random and oracle only."}
    )
    algo: str = field(default="starpo-s", metadata={"help": "Of a training file that --config reads; else no matter."})
    episodes: int = field(
        default=512, metadata={"help": "Held-out start states, at most 8000.", "aliases": ["--eval_episodes"]}
    )
    samples_per_start: int = field(
        default=1, metadata={"help": "Episodes from each start state; with several there is pass@k."}
    )
    eval_temperature: float = field(default=1.0, metadata={"help": "Sampling temperature; 0 is greedy."})
    side_by_side: int = field(
        default=128, metadata={"help": "Episodes played at a time, and saved at a time; fewer take less memory."}
    )
    overwrite: bool = field(default=False, metadata={"help": "Delete an older evaluation in the output folder first."})


@dataclass
class ApiArguments:
    """Which model behind an OpenAI-compatible server is evaluated. The key comes from OPENAI_API_KEY only."""

    api_model: str | None = field(default=None, metadata={"help": "Name of a model at an OpenAI-compatible server."})
    api_base: str | None = field(default=None, metadata={"help": "Its base URL; unset: OPENAI_BASE_URL."})
    api_cache: str | None = field(
        default=None, metadata={"help": "File that keeps its answers; unset: api_cache.sqlite in the output folder."}
    )
    api_concurrency: int = field(default=16, metadata={"help": "Requests on the way at a time."})
    api_timeout: float = field(default=120.0, metadata={"help": "Seconds that an attempt waits for an answer."})
    api_retries: int = field(default=6, metadata={"help": "Repetitions of a request after 429, 5xx and timeouts."})
    api_leave_out: list[str] = field(
        default_factory=list, metadata={"help": "Fields that the server refuses, of seed, temperature, top_p."}
    )
    api_token_limit: str = field(
        default="max_tokens", metadata={"help": "'max_tokens', or 'max_completion_tokens' for reasoning models."}
    )
    api_prompt_price: float | None = field(default=None, metadata={"help": "Price of a million tokens sent."})
    api_completion_price: float | None = field(default=None, metadata={"help": "Price of a million tokens written."})
