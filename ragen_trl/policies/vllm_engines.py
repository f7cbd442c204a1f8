"""vLLM as TRL holds it: one engine in every process (colocate), or one server for all of them.

Both take token ids, with a seed and a token limit for every row, and return token ids with log-probabilities. These are
log-probabilities of the distribution that was sampled from. Unlike those of the Transformers backend, they are taken
not only after the temperature but also after top-k and top-p (``logprobs_mode="processed_logprobs"``, which TRL sets in
colocate mode and requires of a server). So TRL's importance ratio is exact.

This module relies on these parts of TRL 1.16, each checked by a contract test: ``VLLMGeneration`` has ``llm`` in
colocate mode and, on the main process, ``vllm_client`` in server mode; ``VLLMClient.generate`` adds
``generation_kwargs`` to the request; ``sync_weights`` sends ``model``'s parameters as they are and empties the prefix
cache. Left out: TRL's ``VLLMGeneration.generate``, which cuts a server's answer into slices by
``process_index * len(prompts)`` and is wrong as soon as processes have different numbers of rows; sleep mode, which
drops the weights after every call; and tensor parallelism in colocate mode, because its processes would have to agree
on every call.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from peft.tuners.tuners_utils import BaseTunerLayer
from transformers import PreTrainedModel
from trl.generation.vllm_generation import VLLMGeneration

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.policies.sampling import Sampling

# TRL's client keeps this many connections open.
_REQUESTS_AT_A_TIME = 64


class VLLMServerError(UserError, RuntimeError):
    """The vLLM server did not answer a request."""


class EngineModelError(UserError, ValueError):
    """There is no folder from which vLLM can load the policy."""


@dataclass(frozen=True)
class Context:
    """One row's request to the engine.

    Attributes:
        ids: All tokens before the reply.
        seed: Sampling seed of this reply.
        max_tokens: Number of tokens that the reply may have.
    """

    ids: list[int]
    seed: int
    max_tokens: int


@dataclass(frozen=True)
class Completion:
    """Sampled tokens, including the one that ended the reply, and the log-probability of each (NaN if unknown)."""

    ids: list[int]
    logprobs: list[float]


class Engine(Protocol):
    """What a policy needs of vLLM.

    Attributes:
        max_context: Number of tokens that a context and its reply may have together.
    """

    max_context: int

    def complete(self, contexts: Sequence[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
        """Sample a reply to each of this process's contexts, in order."""

    def anyone(self, playing: bool) -> bool:
        """Whether any process that must take part in ``complete`` still plays."""


class ColocatedEngine:
    """This process's own engine.

    Args:
        llm: ``vllm.LLM``.
        make_params: ``vllm.SamplingParams``.
    """

    def __init__(self, llm: Any, make_params: Callable[..., Any]) -> None:
        self.max_context: int = llm.llm_engine.model_config.max_model_len
        self._llm = llm
        self._make_params = make_params

    def complete(self, contexts: Sequence[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
        """One call for all rows, each with its own parameters."""
        if not contexts:
            return []
        shared = {**_options(sampling), **_ends(sampling, stop_ids)}
        outputs = self._llm.generate(
            [{"prompt_token_ids": context.ids} for context in contexts],
            sampling_params=[
                self._make_params(**shared, seed=context.seed, max_tokens=context.max_tokens) for context in contexts
            ],
            use_tqdm=False,
        )
        return [_completion(request.outputs[0]) for request in outputs]

    def anyone(self, playing: bool) -> bool:
        """Only this process's answer counts, because other processes have their own engines."""
        return playing


class ServedEngine:
    """One server for all processes. The main process asks it for the rows of all; each process takes its own.

    Every process must make the same number of calls. A process whose rows are finished calls without contexts.

    Args:
        client: TRL's client on the main process, ``None`` on the others.
        process: Index of this process; 0 is the main one.
        gather: Joins the lists of all processes in their order, on all of them (``accelerate.utils.gather_object``).
        broadcast: Replaces the contents of a list by those of the main process's list.

    Raises:
        VLLMServerError: On all processes, if the server does not answer.
    """

    def __init__(
        self,
        client: Any | None,
        process: int = 0,
        gather: Callable[[list[Any]], list[Any]] = gather_object,
        broadcast: Callable[[list[Any]], list[Any]] = broadcast_object_list,
    ) -> None:
        self._client = client
        self._process = process
        self._gather = gather
        self._broadcast = broadcast
        self.max_context: int = self._of_main(lambda server: server.get_server_info()["model_config"]["max_model_len"])

    def complete(self, contexts: Sequence[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
        """Gather the contexts, send one request per row, and distribute the answers."""
        everyone: list[tuple[int, Context]] = self._gather([(self._process, context) for context in contexts])
        answers = self._of_main(lambda server: _ask(server, [row for _, row in everyone], sampling, stop_ids))
        return [answer for (process, _), answer in zip(everyone, answers, strict=True) if process == self._process]

    def anyone(self, playing: bool) -> bool:
        """Whether any process still plays; all processes get the same answer."""
        return any(self._gather([playing]))

    def _of_main(self, ask: Callable[[Any], Any]) -> Any:
        """The server's answer to the main process, on all processes. Its failure too, or the others would wait."""
        shared: list[Any] = [None, None]
        cause = None
        if self._client is not None:
            try:
                shared[0] = ask(self._client)
            except Exception as error:  # errors of requests, and the plain Exception that TRL's client raises
                cause = error
                shared[1] = (
                    f"the vLLM server at {self._client.base_url} failed ({type(error).__name__}: {error}); see its "
                    "log, start it again (vllm serve MODEL, with this run's model and the options that TRL requires), "
                    "and resume from the last checkpoint"
                )
        self._broadcast(shared)
        answer, failure = shared
        if failure is not None:
            raise VLLMServerError(failure) from cause
        return answer


def check_loadable(model: str | PreTrainedModel, args: StarPOConfig) -> None:
    """Check that an engine in this process can load the policy from its path, which it does before it gets weights.

    Raises:
        EngineModelError: If the model was built in memory.
    """
    if args.use_vllm and args.vllm_mode == "colocate" and not isinstance(model, str) and not model.name_or_path:
        raise EngineModelError(
            "use_vllm is True, so vLLM loads the policy from its path, but this model was built in memory; save it "
            "with its tokenizer and pass the folder, or set use_vllm=False"
        )


class OwnGroup:
    """Exchanges Python objects among all processes, in a group that nothing else uses.

    A rollout in another thread exchanges while training adds up gradients. In one group the two would take each other's
    messages. All processes make it together.
    """

    def __init__(self) -> None:
        self._group = torch.distributed.new_group(backend="gloo")

    def gather(self, objects: list[Any]) -> list[Any]:
        """The lists of all processes, joined in their order."""
        parts: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(parts, objects, group=self._group)
        return [each for part in parts for each in part]

    def broadcast(self, objects: list[Any]) -> list[Any]:
        """Replace the contents of a list by those of the main process's."""
        torch.distributed.broadcast_object_list(objects, src=0, group=self._group)
        return objects


def connect(generation: VLLMGeneration, accelerator: Accelerator, in_thread: bool = False) -> Engine:
    """The engine that TRL has started or connected to.

    Args:
        generation: TRL's.
        accelerator: Its processes share a server.
        in_thread: Whether it is asked while the main thread trains.
    """
    if generation.mode == "server":
        client = generation.vllm_client if accelerator.is_main_process else None
        if in_thread and accelerator.num_processes > 1:
            group = OwnGroup()
            return ServedEngine(client, accelerator.process_index, group.gather, group.broadcast)
        return ServedEngine(client, accelerator.process_index)
    from vllm import SamplingParams  # type: ignore[import-not-found]  # an optional dependency

    return ColocatedEngine(generation.llm, SamplingParams)


@contextmanager
def unchanged_base(model: torch.nn.Module) -> Iterator[None]:
    """Restore the base weights under LoRA layers bit for bit at the end.

    To send a LoRA policy, TRL adds the adapter to the base weights and subtracts it again, which rounds. With this the
    base stays as it was loaded, after any number of updates. A*-PO's reference and TRL's KL term are that base.
    """
    layers = [module.get_base_layer() for module in model.modules() if isinstance(module, BaseTunerLayer)]
    weights = [weight for layer in layers for weight in layer.parameters()]
    kept = [weight.detach().to("cpu", copy=True) for weight in weights]  # not on the GPU, which two models fill
    try:
        yield
    finally:
        for weight, value in zip(weights, kept, strict=True):
            weight.data.copy_(value)


def _options(sampling: Sampling) -> dict[str, Any]:
    """The sampling options that all rows share; ``logprobs=0`` asks only for those of the sampled tokens."""
    return {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "logprobs": 0}


def _ends(sampling: Sampling, stop_ids: frozenset[int]) -> dict[str, Any]:
    """The options for what ends a reply. The token that ends it is part of the reply, in both cases."""
    texts = {"stop": ["</answer>"], "include_stop_str_in_output": True} if sampling.stop_at_answer else {}
    return {"stop_token_ids": sorted(stop_ids), **texts}


def _completion(output: Any) -> Completion:
    ids = list(output.token_ids)
    return Completion(ids, [place[token].logprob for token, place in zip(ids, output.logprobs, strict=True)])


def _ask(client: Any, contexts: list[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
    """Send one request per row, side by side, because rows of one request would share seed and limit."""

    def send(context: Context) -> Completion:
        answer = client.generate(
            prompts=[context.ids],
            max_tokens=context.max_tokens,
            generation_kwargs={"seed": context.seed, **_ends(sampling, stop_ids)},
            **_options(sampling),
        )
        (ids,), (logprobs,) = answer["completion_ids"], answer["logprobs"]
        values = [place[0] for place in logprobs]  # one per position: the sampled token's
        return Completion(list(ids), [math.nan if value is None else value for value in values])

    if not contexts:
        return []
    with ThreadPoolExecutor(min(_REQUESTS_AT_A_TIME, len(contexts))) as pool:
        return list(pool.map(send, contexts))
