"""How many trajectories a second does a rollout give, next to TRL's own loop and to the first code one would write?

    python benchmarks/rollout_throughput.py [--smoke]   # some minutes on one core

All play the same model, start states, turns and tokens a turn. *Ours* keeps the KV cache between turns; *generate*
calls ``model.generate`` on the whole history in every turn; *TRL* is ``GRPOTrainer(environment_factory=…)`` without its
resets and scores. The environments get a script's actions instead of the replies, so contexts are equal too. Ways take
turns in every round; seconds are CPU time of one thread.
"""

import argparse
import functools
import os
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import torch
from datasets import Dataset
from record import median_ratio, place, table, write
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from ragen_envs import AgentTurns
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start, TurnEnv
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory

LAKE = ("ragen/FrozenLake-v0", {"is_slippery": False, "frozen_prob": 0.9}, ("Up", "Down"), 64)
SHOP = (
    *("ragen/WebShop-v0", {"catalog": "synthetic:200"}),
    *(("search[shirt]", "click[next >]", "click[back to search]"), 16),
)
TURNS, GROUP = 5, 8
clock = time.process_time


def main() -> None:
    """Play two games in the three ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=16, help="of every reply")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.smoke:
        asked.rounds, asked.tokens = 1, 4
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    torch.set_num_threads(1)
    games: dict[str, dict[str, Any]] = {}
    for env, kwargs, script, count in (LAKE, SHOP):
        tokenizer = build_tiny_tokenizer(env=None if asked.smoke else env)  # one that knows the words of the store
        model = build_tiny_model(tokenizer)
        model.config.max_position_embeddings = 16_384  # pages are long for one that does not
        make = functools.partial(turns_of, env, kwargs)
        games[env] = compare(model, tokenizer, make, script, 8 if asked.smoke else count, asked)
    rows = []
    for env, game in games.items():
        rates = {name: game["trajectories"] / statistics.median(spent) for name, spent in game["rounds"].items()}
        shape = f"`{env}`: {game['trajectories']} × {TURNS} turns, {game['length']['ours']:.0f} tokens each"
        others = [
            f"{rates[name]:.1f} (ours {median_ratio(game['rounds'][name], game['rounds']['ours']):.1f} ×)"
            for name in ("generate", "trl")
        ]
        rows.append([shape, f"{rates['ours']:.1f}", *others, f"{game['env_share']:.1%} of ours"])
    columns = ["trajectories a second", "ours", "`model.generate` on the history", "TRL's loop", "environments"]
    note = f"{asked.tokens} tokens sampled a turn. Medians of {asked.rounds} rounds, CPU time of one thread."
    command = "python benchmarks/rollout_throughput.py"
    shown = table(columns, rows, note)
    write(place("rollout_throughput", asked.smoke, asked.out), command, games=games, table=shown)


def turns_of(env: str, kwargs: dict[str, Any]) -> AgentTurns:
    """An environment that takes whole replies, `TURNS` and no more."""
    made = gymnasium.make(env, disable_env_checker=True, **kwargs)
    return AgentTurns(made, max_turns=TURNS, max_actions_per_turn=1, max_actions=TURNS + 1, think=False)


def compare(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    make: Callable[[], AgentTurns],
    script: Sequence[str],
    count: int,
    asked: argparse.Namespace,
) -> dict[str, Any]:
    """Seconds of every round of every way to sample, and what was sampled."""
    states = seeds_that_last(make, script, TURNS, -(-count // GROUP))
    seeds = [state for state in states for _ in range(GROUP)][:count]
    envs = [Steady(make(), script) for _ in seeds]
    played: dict[str, list[Trajectory]] = {}
    trl = tool_loop(model, tokenizer, envs, TURNS, asked.tokens)
    chat = Endless(tokenizer, reply_prefix="<answer>")

    def play_with(name: str, policy: Policy) -> float:
        for env in envs:
            env.seconds = 0.0
        seconds, played[name] = timed_play(envs, policy, seeds)
        return seconds

    ways: dict[str, Callable[[], float]] = {
        "ours": lambda: play_with("ours", TransformersPolicy(model, chat, Sampling(asked.tokens))),
        "generate": lambda: play_with("generate", FullHistory(model, chat, asked.tokens)),
        "trl": lambda: trl.sample(seeds),
    }
    for way in ways.values():
        way()  # warms up
    shares = []
    rounds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(asked.rounds):
        for name, way in ways.items():
            rounds[name].append(way())
            if name == "ours":
                shares.append(sum(env.seconds for env in envs) / rounds[name][-1])
    sampled = {name: sum(row.num_reply_tokens for row in rows) for name, rows in played.items()}
    sampled["trl"] = sum(map(sum, trl.sampled[2]))  # its mask of sampled tokens
    lengths = {name: statistics.mean(len(row.token_ids) for row in rows) for name, rows in played.items()}
    return {
        **{"trajectories": count, "seeds": states, "sampled": sampled, "length": lengths},
        **{"env_share": statistics.median(shares), "rounds": rounds},
    }


# Observations are messages of the tool, in the same words as a user's. TRL asks that calls can be rendered, too.
TOOL_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + ('user' if message['role'] == 'tool' else message['role']) + '\n' + message['content'] -}}"
    "{%- for call in message.tool_calls or [] -%}"
    "{{- call.function.name + (call.function.arguments | tojson) -}}"
    "{%- endfor -%}"
    "{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)
EXTRA = 1 << 16  # tokens that nobody reaches


class Steady:
    """An environment that gets the actions of a script instead of the reply, and counts how long its own work takes.

    Args:
        env: What is played.
        script: The action of each turn; after the last one it starts again.
    """

    def __init__(self, env: TurnEnv, script: Sequence[str]) -> None:
        self._env, self._script = env, script
        self._turn = 0
        self.seconds = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """As in the environment."""
        self._turn = 0
        began = clock()
        found = self._env.reset(seed=seed, options=options)
        self.seconds += clock() - began
        return found

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        """As in the environment, for the reply of the script."""
        reply = f"<answer>{self._script[self._turn % len(self._script)]}</answer>"
        self._turn += 1
        began = clock()
        found = self._env.step(reply)
        self.seconds += clock() - began
        return found


class Endless(Chat):
    """A chat in which no token ends a reply, so that all replies are as long as they may be."""

    def stop_ids(self, declared: int | Sequence[int] | None) -> frozenset[int]:
        """None."""
        return frozenset()


class FullHistory(Policy):
    """The first code one would write: ``model.generate`` on the whole history of every row, in every turn.

    Args:
        model: The model.
        chat: Turns messages into tokens.
        tokens: Tokens of every reply.
    """

    def __init__(self, model: PreTrainedModel, chat: Chat, tokens: int) -> None:
        self._model = model
        self.chat: Chat | None = chat
        self._decode = chat.decode_reply
        self.max_context: int | None = None
        pad = model.config.get_text_config().pad_token_id or 0
        self._config = GenerationConfig(
            max_new_tokens=tokens, min_new_tokens=tokens, do_sample=True, top_k=0, pad_token_id=pad, eos_token_id=pad
        )
        self._histories: list[list[int]] = []

    def begin(self, seeds: Sequence[int]) -> None:
        """Empty histories."""
        self._histories = [[] for _ in seeds]

    def end(self, rows: Sequence[int]) -> None:
        """Rows that have ended are not asked again."""

    @torch.no_grad()
    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Sample; the model reads the whole history again."""
        for request in requests:
            self._histories[request.row].extend(request.new_ids)
        histories = [self._histories[request.row] for request in requests]
        width = max(map(len, histories))
        ids = torch.tensor([[0] * (width - len(history)) + history for history in histories])
        mask = torch.tensor([[0] * (width - len(history)) + [1] * len(history) for history in histories])
        device = self._model.device
        output = self._model.generate(ids.to(device), attention_mask=mask.to(device), generation_config=self._config)
        sampled = output[:, width:].tolist()
        for history, tokens in zip(histories, sampled, strict=True):
            history.extend(tokens)
        return [Reply(self._decode(tokens), tuple(tokens), cut=True) for tokens in sampled]


class CallTokenizer(PreTrainedTokenizerFast):
    """Reads every reply as a call of the tool, so that TRL's loop goes on until its limit."""

    def parse_response(self, response: Any, *, prefix: Any = None, tools: Any = None) -> dict[str, Any]:
        """A call with the reply's text."""
        function = {"name": "act", "arguments": {"reply": self.decode(response, skip_special_tokens=True)}}
        return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": function}]}


class Tool:
    """A `TurnEnv` as TRL's tool environment."""

    def __init__(self, env: TurnEnv) -> None:
        self._env = env

    def reset(self, *, seed: int, **row: Any) -> str:
        """The first message."""
        return self._env.reset(seed=seed)[0]

    def act(self, reply: str) -> str:
        """Answer.

        Args:
            reply: The whole reply.

        Returns:
            The next message.
        """
        return self._env.step(reply)[0]

    def get_reward(self) -> float:
        """Nothing is learnt here."""
        return 0.0


class _Played(Exception):
    """TRL has sampled, and need not score."""


class ToolLoop(GRPOTrainer):
    """TRL's own multi-turn loop, timed apart from what comes before (resets) and after (scores)."""

    def _generate(self, prompts: list[Any]) -> Any:
        began = clock()
        output = super()._generate(prompts)
        self.spent = clock() - began
        self.sampled = output
        raise _Played

    def sample(self, seeds: Sequence[int]) -> float:
        """Seconds of one rollout."""
        rows = [{"prompt": [{"role": "user", "content": ""}], "seed": seed} for seed in seeds]
        try:
            self._generate_and_score_completions(rows)
        except _Played:
            return float(self.spent)
        raise AssertionError("TRL did not sample")


def tool_loop(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, envs: Sequence[TurnEnv], turns: int, tokens: int
) -> ToolLoop:
    """A trainer of TRL that plays these environments, ``turns`` replies of ``tokens`` tokens each."""
    calls = CallTokenizer(
        tokenizer_object=tokenizer.backend_tokenizer,
        eos_token=tokenizer.eos_token,
        pad_token=tokenizer.pad_token,
        chat_template=TOOL_TEMPLATE,
        padding_side="left",
    )
    calls.response_template = {"every reply": "is a call"}  # TRL asks whether there is one; the method decides
    unused = iter(envs)
    args = GRPOConfig(
        output_dir="runs/benchmark-rollout-throughput",
        per_device_train_batch_size=len(envs),
        num_generations=len(envs),
        max_completion_length=EXTRA,
        max_tool_calling_iterations=turns - 1,
        generation_kwargs={"max_new_tokens": tokens, "min_new_tokens": tokens},
        use_cpu=model.device.type == "cpu",
        bf16=False,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        max_steps=1,
        beta=0.0,
    )
    rows = {"prompt": [[{"role": "user", "content": ""}]] * len(envs), "seed": [0] * len(envs)}
    return ToolLoop(
        model,
        args=args,
        train_dataset=Dataset.from_dict(rows),
        processing_class=calls,
        environment_factory=lambda: Tool(next(unused)),
    )


def seeds_that_last(make: Callable[[], AgentTurns], script: Sequence[str], turns: int, count: int) -> list[int]:
    """The first start states in which the script does not end the game before the last turn."""
    env, found, seed = Steady(make(), script), [], 0
    while len(found) < count:
        env.reset(seed=seed)
        ended = [any(env.step("")[2:4]) for _ in range(turns - 1)]
        if not any(ended):
            found.append(seed)
        seed += 1
        if seed > 100 * count + 100:
            raise ValueError(f"the script {script} ends {seed - len(found)} of {seed} games early; take another one")
    return found


def timed_play(envs: Sequence[TurnEnv], policy: Policy, seeds: Sequence[int]) -> tuple[float, list[Trajectory]]:
    """Seconds of one rollout, and what was played."""
    starts = [Start(seed, 0, place) for place, seed in enumerate(seeds)]
    began = clock()
    played = play(envs, policy, starts)
    return clock() - began, played


if __name__ == "__main__":
    main()
