"""Replies from vLLM: TRL's engine in this process, or one server for all processes, and the weights that it gets.

A row's context is sent in full as token ids at every turn; the engine's prefix cache avoids computing it again. Back
come token ids with log-probabilities of the distribution that was sampled from: after the temperature, top-k and top-p
(``logprobs_mode="processed_logprobs"``), so TRL's importance ratio is exact. Relies on ``VLLMGeneration`` having
``llm``, asleep at first with ``enable_sleep_mode``, or ``vllm_client`` on the main process, and ``sync_weights``; its
``generate`` is not used, which is wrong as soon as processes have different numbers of rows.
"""

import math
import shutil
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from transformers import PreTrainedModel
from trl.generation import vllm_generation
from trl.generation.vllm_generation import VLLMGeneration

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.errors import OptionError, UserError
from ragen_trl.policies.models import context_length
from ragen_trl.policies.sampling import ReplyEnd, Sampling
from ragen_trl.rollout.control_tokens import END_ANSWER
from ragen_trl.rollout.interfaces import Policy, Reply, Request
from ragen_trl.system.shards import whole

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat

_AT_A_TIME = 64  # requests to a server, as in TRL's client
_LARGEST_SEED = np.iinfo(np.int64).max
_SLEEP_LEVEL = 2  # drops weights, which every rollout gets again anyway; level 1 would keep them in the host's memory


class VLLMServerError(UserError, RuntimeError):
    """A vLLM server did not answer, refused a request, or did not get the policy's weights."""


# What is asked for a row, and what comes back


@dataclass(frozen=True)
class Context:
    """One row's request: all tokens before the reply, the reply's seed and limit."""

    ids: list[int]
    seed: int
    max_tokens: int


@dataclass(frozen=True)
class Completion:
    """Sampled tokens, including the one that ended the reply, and the log-probability of each (NaN if unknown)."""

    ids: list[int]
    logprobs: list[float]


def _options(sampling: Sampling) -> dict[str, Any]:
    """The sampling options that all rows share; ``logprobs=0`` asks only about the sampled tokens."""
    return {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p, "logprobs": 0}


def _ends(sampling: Sampling, stop_ids: frozenset[int]) -> dict[str, Any]:
    """The options for what ends a reply. The token that ends it is part of the reply, in both cases."""
    texts = {"stop": [END_ANSWER], "include_stop_str_in_output": True} if sampling.stop_at_answer else {}
    return {"stop_token_ids": sorted(stop_ids), **texts}


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
        shared = {**_options(sampling), **_ends(sampling, stop_ids)}
        outputs = self._llm.generate(
            [{"prompt_token_ids": context.ids} for context in contexts],
            sampling_params=[
                self._make_params(**shared, seed=context.seed, max_tokens=context.max_tokens) for context in contexts
            ],
            use_tqdm=False,
        )
        completions = []
        for output in (request.outputs[0] for request in outputs):
            ids = list(output.token_ids)
            logprobs = [place[token].logprob for token, place in zip(ids, output.logprobs, strict=True)]
            completions.append(Completion(ids, logprobs))
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
    TRL's ``VLLMClient``, on the main process only. ``gather`` joins the lists of all processes in their order,
    ``broadcast`` replaces a list by the main process's.

    Attributes:
        max_context: Number of tokens that a context and its reply may have together.

    Raises:
        VLLMServerError: On all processes, if the server does not answer.
    """

    def __init__(
        self,
        client: Any,
        process: int = 0,
        gather: Callable[[list[Any]], list[Any]] = gather_object,
        broadcast: Callable[[list[Any]], list[Any]] = broadcast_object_list,
    ) -> None:
        self._client = client
        self._process = process
        self._gather = gather
        self._broadcast = broadcast
        self.max_context: int = _on_main(
            client, lambda client: client.get_server_info()["model_config"]["max_model_len"], broadcast
        )

    def complete(self, contexts: Sequence[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
        """Gather the contexts, send one request per row, and distribute the answers."""
        everyone: list[tuple[int, Context]] = self._gather([(self._process, context) for context in contexts])

        def ask(client: Any) -> list[Completion]:
            send = partial(_served, client, sampling=sampling, stop_ids=stop_ids)
            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                return list(pool.map(send, [context for _, context in everyone]))

        answers: list[Completion] = _on_main(self._client, ask, self._broadcast)
        return [answer for (process, _), answer in zip(everyone, answers, strict=True) if process == self._process]

    def anyone(self, playing: bool) -> bool:
        """Whether any process still plays; all processes get the same answer."""
        return any(self._gather([playing]))

    def sleep(self) -> None:
        """Do nothing: a server has memory of its own."""


Engine: TypeAlias = ColocatedEngine | ServedEngine


def connect(generation: VLLMGeneration, accelerator: Accelerator) -> Engine:
    """The engine that TRL has started or connected to."""
    if generation.mode == "server":
        client = generation.vllm_client if accelerator.is_main_process else None
        return ServedEngine(client, accelerator.process_index)
    from vllm import SamplingParams  # type: ignore[import-not-found]  # an optional dependency

    return ColocatedEngine(generation.llm, SamplingParams, generation.enable_sleep_mode)


@contextmanager
def one_server(args: StarPOConfig) -> Iterator[None]:
    """A trainer that is made in this block says in one line if the server does not answer.

    TRL's client also opens a group of NCCL, for which an adapter in a folder (``vllm_adapter_dir``) has no use.
    """
    theirs = vllm_generation.VLLMClient

    def connected(**options: Any) -> Any:
        try:
            client = theirs(**options)
        except OSError as error:  # the ConnectionError of requests
            raise VLLMServerError(
                f"{error} Start it (docs/vllm.md has the commands), or correct vllm_server_base_url"
            ) from error
        if args.vllm_adapter_dir is not None:
            client.init_communicator = lambda device: None
        return client

    vllm_generation.VLLMClient = connected
    try:
        yield
    finally:
        vllm_generation.VLLMClient = theirs


def _served(client: Any, context: Context, sampling: Sampling, stop_ids: frozenset[int]) -> Completion:
    answer = client.generate(
        prompts=[context.ids],
        max_tokens=context.max_tokens,
        generation_kwargs={"seed": context.seed, **_ends(sampling, stop_ids)},
        **_options(sampling),
    )
    (ids,), (logprobs,) = answer["completion_ids"], answer["logprobs"]
    values = [place[0] for place in logprobs]  # one per position: the sampled token's
    return Completion(list(ids), [math.nan if value is None else value for value in values])


def _on_main(client: Any, ask: Callable[[Any], Any], broadcast: Callable[[list[Any]], list[Any]]) -> Any:
    """What ``ask`` gets of the client on the main process, or a `VLLMServerError`, on all processes."""
    shared: list[Any] = [None, None]
    cause = None
    if client is not None:
        try:
            shared[0] = ask(client)
        except Exception as error:  # of requests, of NCCL, and the plain Exception that TRL's client raises
            cause = error
            shared[1] = (
                f"the vLLM server at {client.base_url} failed ({type(error).__name__}: {error}); see its log, start it "
                "again as it was, and resume from the last checkpoint"
            )
    broadcast(shared)
    answer, failure = shared
    if failure is not None:
        raise VLLMServerError(failure) from cause
    return answer


# The policy


@dataclass
class _Row:
    random: np.random.Generator
    ids: list[int] = field(default_factory=list)


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
        self.sampling = sampling
        self._engine = engine
        self._end = ReplyEnd(chat, model, sampling.stop_at_answer)
        self._decode = chat.decode_reply
        self._refresh = refresh
        self._rows: dict[int, _Row] = {}

    def begin(self, seeds: Sequence[int]) -> None:
        """Start empty contexts, one per sampling seed, with the policy's present weights."""
        self._refresh()
        self._rows = {row: _Row(np.random.default_rng(seed)) for row, seed in enumerate(seeds)}

    def end(self, rows: Sequence[int]) -> None:
        """Forget finished rows."""
        for finished in rows:
            del self._rows[finished]

    def goes_on(self, playing: bool) -> bool:
        """With one server for all processes, they take turns together as long as any of them plays."""
        return self._engine.anyone(playing)

    def reply(self, requests: Sequence[Request]) -> list[Reply]:
        """Append each request's tokens to its row and sample a reply."""
        contexts = []
        for request in requests:
            row = self._rows[request.row]
            if request.context_ids is not None:
                row.ids = list(request.context_ids)
            row.ids.extend(request.new_ids)
            seed = int(row.random.integers(_LARGEST_SEED))
            contexts.append(Context(list(row.ids), seed, request.max_tokens(self.sampling.max_tokens)))
        replies = []
        completions = self._engine.complete(contexts, self.sampling, self._end.stop_ids)
        for request, completion in zip(requests, completions, strict=True):
            ids = completion.ids
            self._rows[request.row].ids.extend(ids)
            replies.append(
                Reply(self._decode(ids), tuple(ids), tuple(completion.logprobs), cut=not self._end.reached(ids))
            )
        return replies


# Weights

# What vLLM reads otherwise than PEFT, or not at all, with the only value that it may have.
_UNREAD: dict[str, Any] = {
    "use_dora": False,
    "bias": "none",
    "lora_bias": False,
    "modules_to_save": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layer_replication": None,
    "trainable_token_indices": None,
    "target_parameters": None,
}
# Others change the base, of which the server has a copy of its own.
_INITIALISATIONS = (True, False, "gaussian", "eva", "orthogonal")


def check_loadable(
    model: str | PreTrainedModel | PeftModel, args: StarPOConfig, peft_config: PeftConfig | None = None
) -> None:
    """Raise `OptionError` unless vLLM can get the policy: an engine from its path, or a server its adapter."""
    if args.vllm_adapter_dir is not None:
        check_adapter(model.peft_config[model.active_adapters[0]] if isinstance(model, PeftModel) else peft_config)
    if args.use_vllm and args.vllm_mode == "colocate" and not isinstance(model, str) and not model.name_or_path:
        raise OptionError(
            "use_vllm is True, so vLLM loads the policy from its path, but this model was built in memory; save it "
            "with its tokenizer and pass the folder, or set use_vllm=False"
        )


def check_adapter(config: PeftConfig | None) -> None:
    """Raise `OptionError` unless a server gets the trainer's policy if it reads its adapter alone.

    The self-check would not tell: before the first update most adapters are 0.
    """
    wrong = ""
    if not isinstance(config, LoraConfig):
        wrong = "all weights are trained" if config is None else f"the adapter is a {type(config).__name__}"
    else:
        for name, only in _UNREAD.items():
            value = getattr(config, name, only)
            if value and value != only:
                wrong = f"{name} of the LoRA configuration is {value!r}, which vLLM does not read"
        if config.init_lora_weights not in _INITIALISATIONS:
            wrong = f"init_lora_weights is {config.init_lora_weights!r}, which changes the base that the server has"
    if wrong:
        raise OptionError(
            f"vllm_adapter_dir is set, but {wrong}; take a plain LoraConfig (on the command line --lora_r), or leave "
            "vllm_adapter_dir unset, which sends merged weights"
        )


class WeightSync:
    """Gives the policy's weights to the engine or the server of a trainer; all processes call `send` together.

    TRL loads whole weights into an engine of the same process, and sends them to a server over NCCL, adapters merged. A
    server reads an adapter alone from a folder that it shares with the trainer (``vllm_adapter_dir``), of this run
    alone. Every version has a name and a folder of its own, because vLLM finds contexts in its cache by both.
    """

    def __init__(
        self,
        generation: VLLMGeneration,
        args: StarPOConfig,
        main: bool,
        broadcast: Callable[[list[Any]], list[Any]] = broadcast_object_list,
    ) -> None:
        self._generation = generation
        self._client = generation.vllm_client if generation.mode == "server" and main else None
        self._base = None if self._client is None else self._client.model  # the name of the server's own model
        self._broadcast = broadcast
        self._folder = None if args.vllm_adapter_dir is None else Path(args.vllm_adapter_dir).absolute()
        self._run = uuid.uuid4().hex[:8]  # a resumed run's versions have other names
        self._version = 0

    def send(self) -> None:
        """Send the present weights; `VLLMServerError` on all processes if a server does not get them."""
        model = self._generation.model
        if self._folder is None:
            self._send_whole()
        elif any(module.disable_adapters for module in model.modules() if isinstance(module, BaseTunerLayer)):
            self._on_main(lambda client: setattr(client, "model", self._base))
        else:
            state, config = adapter_weights(model), model.peft_config[model.active_adapters[0]]
            self._on_main(partial(self._send_adapter, folder=self._folder, state=state, config=config))

    def _send_whole(self) -> None:
        failure: Exception | None = None
        with unchanged_base(self._generation.model):
            try:
                self._generation.sync_weights()
            except Exception as error:
                if self._client is None:
                    raise
                failure = error  # which the other processes do not know of

        def check(client: Any) -> None:
            if failure is not None:
                raise failure

        if self._generation.mode == "server":
            self._on_main(check)

    def _send_adapter(self, client: Any, folder: Path, state: dict[str, torch.Tensor], config: PeftConfig) -> None:
        """Write a version, of which the server sees all or nothing, have it read, and remove all others."""
        self._version += 1
        version, begun = folder / f"adapter-{self._run}-{self._version}", folder / f"partial-{self._run}"
        begun.mkdir(parents=True, exist_ok=True)
        save_file(state, begun / "adapter_model.safetensors", metadata={"format": "pt"})
        config.save_pretrained(str(begun))
        begun.rename(version)
        body = {"lora_name": version.name, "lora_path": str(version)}
        answer = client.session.post(f"{client.base_url}/v1/load_lora_adapter", json=body)
        if answer.status_code != 200:
            raise VLLMServerError(
                f"it does not load the adapter in {version} ({answer.status_code}: {answer.text}); start it with "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment and with --enable-lora --max-lora-rank R, "
                "R at least the adapter's rank, on a machine that sees this folder (vllm_adapter_dir)"
            )
        client.model = version.name  # requests name it instead of the model
        for other in [*folder.glob("adapter-*"), *folder.glob("partial-*")]:  # also those of a run that was killed
            if other != version:
                client.session.post(f"{client.base_url}/v1/unload_lora_adapter", json={"lora_name": other.name})
                shutil.rmtree(other, ignore_errors=True)

    def _on_main(self, ask: Callable[[Any], None]) -> None:
        _on_main(self._client, ask, self._broadcast)


def adapter_weights(model: PeftModel) -> dict[str, torch.Tensor]:
    """The active adapter under PEFT's names, whole and on the CPU; all processes call it together."""
    (name,) = model.active_adapters
    found = {
        key.replace("_checkpoint_wrapped_module.", ""): whole(value).cpu().contiguous()
        for key, value in model.named_parameters()
        if ".lora_" in key and name in key.split(".")
    }
    state: dict[str, torch.Tensor] = get_peft_model_state_dict(
        model, state_dict=found, adapter_name=name, save_embedding_layers=False
    )
    return state


@contextmanager
def unchanged_base(model: torch.nn.Module) -> Iterator[None]:
    """Restore the base weights under LoRA layers bit for bit at the end.

    To send a LoRA policy, TRL adds the adapter to the base weights and subtracts it again, which rounds. A*-PO's
    reference and TRL's KL term are that base.
    """
    layers = [module.get_base_layer() for module in model.modules() if isinstance(module, BaseTunerLayer)]
    weights = [weight for layer in layers for weight in layer.parameters()]
    kept = [weight.detach().to("cpu", copy=True) for weight in weights]  # not on the GPU, which two models fill
    try:
        yield
    finally:
        for weight, value in zip(weights, kept, strict=True):
            weight.data.copy_(value)
