"""Replies from vLLM: TRL's engine in this process, or one server for all processes.

A row's context is sent in full at every turn; the engine's prefix cache avoids computing it again. Back come
log-probabilities of the distribution that was sampled from (``logprobs_mode="processed_logprobs"``), so TRL's ratio is
exact. ``VLLMGeneration.generate`` is not used: it is wrong as soon as processes have different numbers of rows.
"""

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from transformers import PreTrainedModel
from trl.generation.vllm_generation import VLLMGeneration

from ragen_envs import END_ANSWER
from ragen_trl.errors import UserError
from ragen_trl.policies.model_calls import base_kept
from ragen_trl.policies.models import context_length
from ragen_trl.policies.sampling import ReplyEnd, Sampling
from ragen_trl.rollout.interfaces import Policy, Reply, Request

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

_AT_A_TIME = 64  # requests to a server, as in TRL's client
_LARGEST_SEED = np.iinfo(np.int64).max
_SLEEP_LEVEL = 2  # drops weights, which every rollout gets again anyway; level 1 would keep them in the host's memory


class Context(NamedTuple):
    """One row's request: all tokens before the reply, the reply's seed and limit."""

    ids: list[int]
    seed: int
    max_tokens: int


Completion: TypeAlias = tuple[list[int], list[float]]
"""Sampled tokens, including the one that ended the reply, and the log-probability of each (NaN if unknown)."""


def _options(sampling: Sampling, stop_ids: frozenset[int]) -> tuple[dict[str, Any], dict[str, Any]]:
    """How all rows are sampled, and what ends a reply: a token or a text, which is part of it.

    ``logprobs=0`` asks only about the sampled tokens.
    """
    drawn = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "logprobs": 0}
    texts = {"stop": [END_ANSWER], "include_stop_str_in_output": True} if sampling.stop_at_answer else {}
    return drawn, {"stop_token_ids": sorted(stop_ids), **texts}


class ColocatedEngine:
    """This process's own engine.

    Args:
        llm: ``vllm.LLM``.
        make_params: ``vllm.SamplingParams``.
        sleeps: Whether it can sleep, and does already (``vllm_enable_sleep_mode``). TRL wakes its weights when it sends
            new ones; the cache wakes here.

    Attributes:
        max_context: Number of tokens that a context and its reply may have together.
    """

    def __init__(self, llm: Any, make_params: Callable[..., Any], sleeps: bool = False) -> None:
        self.max_context: int = llm.llm_engine.model_config.max_model_len
        self._llm, self._make_params = llm, make_params
        self._sleeps = self._asleep = sleeps

    def complete(self, contexts: Sequence[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
        """One call for all rows, each with its own parameters."""
        if not contexts:
            return []
        if self._asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        drawn, ends = _options(sampling, stop_ids)
        prompts = [{"prompt_token_ids": context.ids} for context in contexts]
        params = [self._make_params(**drawn, **ends, seed=one.seed, max_tokens=one.max_tokens) for one in contexts]
        outputs = self._llm.generate(prompts, sampling_params=params, use_tqdm=False)
        completions = []
        for output in (request.outputs[0] for request in outputs):
            ids = list(output.token_ids)
            completions.append((ids, [place[token].logprob for token, place in zip(ids, output.logprobs, strict=True)]))
        return completions

    def anyone(self, playing: bool) -> bool:
        """Whether another turn is needed; other processes have their own engines."""
        return playing

    def sleep(self) -> None:
        """Drop weights and cache until the next call, before which weights must be sent, if the engine can sleep."""
        if self._sleeps and not self._asleep:
            self._llm.sleep(level=_SLEEP_LEVEL)
            self._asleep = True


class ServedEngine:
    """One server for all processes. The main process asks it for the rows of all; each process takes its own.

    Every process must make the same number of calls; one whose rows are finished calls without contexts. ``client`` is
    TRL's ``VLLMClient``, which tries again by itself, on the main process only.
    """

    def __init__(self, client: Any, process: int = 0) -> None:
        self._client, self._process = client, process
        self.max_context: int = _on_main(
            client, lambda: client and client.get_server_info()["model_config"]["max_model_len"]
        )

    def complete(self, contexts: Sequence[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
        """Gather the contexts, send one request per row, and distribute the answers."""
        everyone: list[tuple[int, Context]] = gather_object([(self._process, context) for context in contexts])
        drawn, ends = _options(sampling, stop_ids)

        def send(context: Context) -> Completion:
            own = {"seed": context.seed, **ends}  # so one request a row
            answer = self._client.generate(
                prompts=[context.ids], max_tokens=context.max_tokens, generation_kwargs=own, **drawn
            )
            (ids,), (logprobs,) = answer["completion_ids"], answer["logprobs"]
            values = [place[0] for place in logprobs]  # one per position: the sampled token's
            return list(ids), [math.nan if value is None else value for value in values]

        def ask() -> list[Completion] | None:
            if self._client is None:
                return None
            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                return list(pool.map(send, [context for _, context in everyone]))

        answers: list[Completion] = _on_main(self._client, ask)
        return [answer for (process, _), answer in zip(everyone, answers, strict=True) if process == self._process]

    def anyone(self, playing: bool) -> bool:
        """Whether any process still plays; all processes get the same answer."""
        return any(gather_object([playing]))

    def sleep(self) -> None:
        """Do nothing: a server has memory of its own."""


Engine: TypeAlias = ColocatedEngine | ServedEngine


def _on_main(client: Any, ask: Callable[[], Any]) -> Any:
    """What ``ask`` returns on the main process, which has a client, and raises `UserError` if it fails there."""
    try:
        shared = [ask()]
    except Exception as error:  # of requests, of NCCL, and the plain Exception that TRL's client raises
        if client is None:
            raise
        raise UserError(
            f"the vLLM server at {client.base_url} failed ({type(error).__name__}: {error}); see its log, start it "
            "again as it was, and resume from the last checkpoint"
        ) from error
    broadcast_object_list(shared)
    return shared[0]


def connect(generation: VLLMGeneration, accelerator: Accelerator) -> Engine:
    """The engine that TRL has started or connected to."""
    if generation.mode == "server":
        client = generation.vllm_client if accelerator.is_main_process else None
        return ServedEngine(client, accelerator.process_index)
    from vllm import SamplingParams  # type: ignore[import-not-found]  # an optional dependency

    return ColocatedEngine(generation.llm, SamplingParams, generation.enable_sleep_mode)


class VLLMPolicy(Policy):
    """Samples replies from a vLLM engine.

    Each turn sends a seed drawn from the row's own, so a reply does not depend on its place in the batch (its logits
    do, by rounding). ``model`` is only read for its limits. ``refresh`` copies the policy's weights to the engine;
    ``begin`` calls it.
    """

    def __init__(
        self,
        engine: Engine,
        model: PreTrainedModel,
        chat: "Chat",
        sampling: Sampling,
        refresh: Callable[[], None] = lambda: None,
    ) -> None:
        self.chat: Chat | None = chat
        self.max_context: int | None = min(engine.max_context, context_length(model) or engine.max_context)
        self.sampling, self._engine, self._refresh, self._decode = sampling, engine, refresh, chat.decode_reply
        stop_ids = chat.stop_ids(model.generation_config.eos_token_id)
        self._end = ReplyEnd(chat.tokenizer, stop_ids, sampling.stop_at_answer)
        self._random: list[np.random.Generator] = []

    def begin(self, seeds: Sequence[int]) -> None:
        """As `Policy.begin`, with the policy's present weights."""
        self._refresh()
        self._random = [np.random.default_rng(seed) for seed in seeds]

    def goes_on(self, playing: bool) -> bool:
        """With one server for all processes, they take turns together as long as any of them plays."""
        return self._engine.anyone(playing)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """As `Policy.reply`."""
        contexts = []
        for request in requests:
            seed = int(self._random[request.row].integers(_LARGEST_SEED))
            limit = request.max_tokens(self.sampling.max_tokens)
            contexts.append(Context(request.context, seed, limit))
        completions = self._engine.complete(contexts, self.sampling, self._end.stop_ids)
        return [
            Reply(self._decode(ids), tuple(ids), tuple(logprobs), cut=not self._end.reached(ids))
            for ids, logprobs in completions
        ]


def send_weights(generation: VLLMGeneration) -> None:
    """Give vLLM the policy's present weights, adapters merged; all processes call it together."""
    with base_kept(generation.model, "cpu"):  # not on the GPU, which two models fill
        if generation.mode == "colocate":
            generation.sync_weights()
        else:
            client = generation.vllm_client if generation.accelerator.is_main_process else None
            _on_main(client, generation.sync_weights)
