"""What benchmarks/rollout_throughput.py compares: three ways to sample the same trajectories, and what they play.

All sample the same number of tokens a turn from the same model. The environment gets the actions of a script, the same
for all, instead of the replies, so that contexts and turns are the same too.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from datasets import Dataset
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

from ragen_envs import AgentTurns
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Policy, Reply, Request, Start, TurnEnv
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory

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
clock = time.perf_counter if torch.cuda.is_available() else time.process_time


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


class Metronome:
    """Shows a message of the same length in every turn.

    Args:
        turns: How many.
        message: What it shows.
    """

    def __init__(self, turns: int, message: str) -> None:
        self._turns, self._message = turns, message
        self._taken = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """The message."""
        self._taken = 0
        return self._message, {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """The message again, until the last turn."""
        self._taken += 1
        return self._message, 0.0, self._taken == self._turns, False, {}


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


def kept_cache(
    model: PreTrainedModel,
    chat: Chat,
    tokens: int,
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> TransformersPolicy:
    """What `StarPOTrainer` plays with."""
    return TransformersPolicy(model, chat, Sampling(tokens), autocast)


class PassTimes:
    """Seconds of a model's passes and their tokens, padding included: of those that read, and those that decode.

    Args:
        model: Watched between ``with`` and its end.

    Attributes:
        found: ``"reading"`` and ``"decoding"``, seconds; ``"read"`` and ``"decoded"``, tokens.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.found = {"reading": 0.0, "read": 0.0, "decoding": 0.0, "decoded": 0.0}
        self._model = model
        self._began = 0.0

    def __enter__(self) -> "PassTimes":
        before = self._model.register_forward_pre_hook(self._begin)
        self._hooks = [before, self._model.register_forward_hook(self._end, with_kwargs=True)]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _begin(self, module: object, args: object) -> None:
        self._began = clock()

    def _end(self, module: object, args: object, kwargs: dict[str, Any], output: object) -> None:
        ids = kwargs["input_ids"]
        seconds, tokens = ("reading", "read") if ids.shape[1] > 1 else ("decoding", "decoded")
        self.found[seconds] += clock() - self._began
        self.found[tokens] += ids.numel()


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
