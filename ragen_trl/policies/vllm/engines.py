"""vLLM as TRL holds it: one engine in every process (colocate), or servers for all of them.

Both take token ids, with a seed and a token limit for every row, and return token ids with log-probabilities of the
distribution that was sampled from: after the temperature, top-k and top-p (``logprobs_mode="processed_logprobs"``), so
TRL's importance ratio is exact. Relies on ``VLLMGeneration`` having ``llm``, asleep at first with
``enable_sleep_mode``, or ``vllm_client`` on the main process; its ``generate`` is not used, which is wrong as soon as
processes have different numbers of rows.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from peft import PeftConfig, PeftModel
from transformers import PreTrainedModel
from trl.generation.vllm_generation import VLLMGeneration

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import UserError
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vllm.requests import Completion, Context, ends, shared_options
from ragen_trl.policies.vllm.servers import Servers, on_main
from ragen_trl.policies.vllm.weights import adapter_of, check_adapter

_SLEEP_LEVEL = 2  # drops weights, which every rollout gets again anyway; level 1 would keep them in the host's memory


class EngineError(UserError, ValueError):
    """An engine cannot load the policy, because there is no folder of it, or its contexts are too short for the run."""


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

    def sleep(self) -> None:
        """Give memory back until the next call, before which weights must be sent."""


class ColocatedEngine:
    """This process's own engine.

    Args:
        llm: ``vllm.LLM``.
        make_params: ``vllm.SamplingParams``.
        sleeps: Whether it can sleep, and does already (``vllm_enable_sleep_mode``). TRL wakes its weights when it sends
            new ones; the cache wakes here.
    """

    def __init__(self, llm: Any, make_params: Callable[..., Any], sleeps: bool = False) -> None:
        self.max_context: int = llm.llm_engine.model_config.max_model_len
        self._llm = llm
        self._make_params = make_params
        self._sleeps = self._asleep = sleeps

    def complete(self, contexts: Sequence[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
        """One call for all rows, each with its own parameters."""
        if not contexts:
            return []
        if self._asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        shared = {**shared_options(sampling), **ends(sampling, stop_ids)}
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

    def sleep(self) -> None:
        """Drop weights and cache, where the engine was made for it."""
        if self._sleeps and not self._asleep:
            self._llm.sleep(level=_SLEEP_LEVEL)
            self._asleep = True


class ServedEngine:
    """Servers for all processes. The main process asks them for the rows of all; each process takes its own.

    Every process must make the same number of calls; one whose rows are finished calls without contexts. ``gather``
    joins the lists of all processes in their order, ``broadcast`` replaces a list by the main process's, ``restore``
    sends the weights again to the servers of these indices, on all processes together.

    Raises:
        VLLMServerError: On all processes, if a server does not answer.
    """

    def __init__(
        self,
        servers: Servers | None,
        process: int = 0,
        gather: Callable[[list[Any]], list[Any]] = gather_object,
        broadcast: Callable[[list[Any]], list[Any]] = broadcast_object_list,
        restore: Callable[[list[int]], None] = lambda lost: None,
    ) -> None:
        self._servers = servers
        self._process = process
        self._gather = gather
        self._broadcast = broadcast
        self._restore = restore
        self.max_context: int = on_main(servers, lambda main: main.max_context, broadcast)

    def complete(self, contexts: Sequence[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
        """Gather the contexts, send one request per row, and distribute the answers."""
        everyone: list[tuple[int, Context]] = self._gather([(self._process, context) for context in contexts])
        answers: list[Completion | None] = [None] * len(everyone)
        while None in answers:
            ask = partial(Servers.ask, rows=everyone, answers=answers, sampling=sampling, stop_ids=stop_ids)
            answers, lost = on_main(self._servers, ask, self._broadcast)
            if lost:
                self._restore(lost)
        complete = [answer for answer in answers if answer is not None]
        return [answer for (process, _), answer in zip(everyone, complete, strict=True) if process == self._process]

    def anyone(self, playing: bool) -> bool:
        """Whether any process still plays; all processes get the same answer."""
        return any(self._gather([playing]))

    def sleep(self) -> None:
        """Servers have memory of their own."""


def check_loadable(
    model: str | PreTrainedModel | PeftModel, args: StarPOConfig, peft_config: PeftConfig | None = None
) -> None:
    """Check that vLLM can get the policy: an engine in this process from its path, a server its adapter.

    Raises:
        EngineError: If the model was built in memory and the engine is in this process.
        AdapterError: If ``vllm_adapter_dir`` is set and vLLM does not read the adapter as PEFT does.
    """
    if args.vllm_adapter_dir is not None:
        check_adapter(adapter_of(model, peft_config))
    if args.use_vllm and args.vllm_mode == "colocate" and not isinstance(model, str) and not model.name_or_path:
        raise EngineError(
            "use_vllm is True, so vLLM loads the policy from its path, but this model was built in memory; save it "
            "with its tokenizer and pass the folder, or set use_vllm=False"
        )


class OwnGroup:
    """Exchanges Python objects among all processes, in a group that nothing else uses; all processes make it together.

    A rollout in another thread exchanges while training adds up gradients, and would take its messages in one group.
    """

    def __init__(self) -> None:
        self._group = torch.distributed.new_group(backend="gloo")

    def gather(self, objects: list[Any]) -> list[Any]:
        """The lists of all processes, joined in their order."""
        parts: list[Any] = [None] * torch.distributed.get_world_size()
        torch.distributed.all_gather_object(parts, objects, group=self._group)
        return [each for part in parts for each in part]

    def broadcast(self, objects: list[Any]) -> list[Any]:
        """Replace the contents of a list by the main process's."""
        torch.distributed.broadcast_object_list(objects, src=0, group=self._group)
        return objects


def connect(
    generation: VLLMGeneration,
    accelerator: Accelerator,
    restore: Callable[[list[int]], None] = lambda lost: None,
    in_thread: bool = False,
) -> Engine:
    """The engine that TRL has started or connected to.

    ``restore`` sends the weights again to servers that lost them. ``in_thread``: it is asked while the main thread
    trains.
    """
    if generation.mode == "server":
        servers = generation.vllm_client if accelerator.is_main_process else None
        if in_thread and accelerator.num_processes > 1:
            group = OwnGroup()
            return ServedEngine(servers, accelerator.process_index, group.gather, group.broadcast, restore)
        return ServedEngine(servers, accelerator.process_index, restore=restore)
    from vllm import SamplingParams  # type: ignore[import-not-found]  # an optional dependency

    return ColocatedEngine(generation.llm, SamplingParams, generation.enable_sleep_mode)


def _completion(output: Any) -> Completion:
    ids = list(output.token_ids)
    return Completion(ids, [place[token].logprob for token, place in zip(ids, output.logprobs, strict=True)])
