"""vLLM servers, one or several: asked side by side, and waited for where one fails.

A row stays with its server over all its turns, for the server's prefix cache. A server that comes back may be another
process without the policy's weights: if ``instance_id`` of its ``/server_info`` has changed, its answers of the turn
are thrown away, it gets the weights again, and the same requests with the same seeds follow. vLLM 0.31 keys cached
contexts by the name and the path of an adapter, so each version has its own; an unknown name is an error 404.
"""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.vllm.client import AT_A_TIME, ServerClient, VLLMServerError
from ragen_trl.policies.vllm.requests import Completion, Context, reply

logger = logging.getLogger(__name__)

_TRIES = 3  # of a request that a server fails although it is well
_PAUSE = 1.0  # seconds between two questions for the health of a server
_EVERY = 60.0  # seconds between two messages about a server that is waited for


class Servers:
    """All servers as one, where TRL's trainer expects its ``VLLMClient``; on the main process only.

    A server that does not answer is waited for ``patience`` seconds (``vllm_server_timeout``). Unless weights come as
    adapters (``adapter_only``), TRL sends them.

    Attributes:
        target: Index of the server that gets what TRL sends.
    """

    def __init__(self, clients: Sequence[Any], patience: float = 0.0, adapter_only: bool = False) -> None:
        self.target = 0
        self.adapter_only = adapter_only
        self._clients = list(clients)
        self._patience = patience
        self._instances: list[str | None] = [None] * len(self._clients)  # that have the policy's weights
        self._bases = [client.model for client in self._clients]  # the names of the models that they were started with
        self._adapter: tuple[str, str] | None = None  # name and folder; None: the base
        self._device: Any = None
        self._failure: Exception | None = None

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def max_context(self) -> int:
        """Number of tokens that a context and its reply may have together, on each server."""
        return min(client.get_server_info()["model_config"]["max_model_len"] for client in self._clients)

    # What TRL calls

    def init_communicator(self, device: Any) -> None:
        """Open the group over which TRL sends weights to each server; an adapter needs none."""
        self._device = device
        if not self.adapter_only:
            for client in self._clients:
                client.init_communicator(device=device)

    def get_server_info(self) -> dict[str, Any]:
        """What a server says of itself: the first one whose log-probabilities are not those TRL wants, if any."""
        infos: list[dict[str, Any]] = [client.get_server_info() for client in self._clients]
        wrong = [info for info in infos if info["model_config"]["logprobs_mode"] != "processed_logprobs"]
        return (wrong or infos)[0]

    def update_named_params(self, metadata: Any, named_params: Iterable[Any]) -> None:
        """Send weights to the target. A failure is raised by `end_sending`, when all processes have taken part."""
        parameters = iter(named_params)
        try:
            self._clients[self.target].update_named_params(metadata, parameters)
        except Exception as error:  # of NCCL, of requests, and the plain Exception that TRL's client raises
            self._failure = error
            for _ in parameters:  # all processes gather them together
                pass

    def reset_prefix_cache(self) -> None:
        """Empty the target's cache of contexts."""
        if self._failure is None:
            self._clients[self.target].reset_prefix_cache()

    # Weights

    def begin_sending(self, index: int) -> None:
        """Wait until a server is well, and make it the target; `VLLMServerError` if it does not answer."""
        instance = self._wait(index)
        client, known = self._clients[index], self._instances[index]
        if known not in (None, instance):
            client.close_communicator()
            client.init_communicator(device=self._device)
        self.target, self._instances[index] = index, instance

    def end_sending(self) -> None:
        """Raise the `VLLMServerError` that sending has failed with."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise self._error(self.target, failure) from failure

    def use_adapter(self, name: str, folder: str) -> None:
        """Have every server load an adapter in PEFT's format, or raise `VLLMServerError`, and ask it with that one.

        Its name must be new, or contexts of another adapter would be found in the cache.
        """
        before, self._adapter = self._adapter, (name, folder)
        for index, client in enumerate(self._clients):
            self._load(index)
            if before is not None:
                self._unload(client, before[0])

    def use_base(self) -> None:
        """Ask every server without an adapter from now on."""
        self._adapter = None
        for index in range(len(self._clients)):
            self._load(index)

    def _load(self, index: int) -> None:
        client = self._clients[index]
        for tries in range(1, _TRIES + 1):
            self._instances[index] = self._wait(index)
            client.model = self._bases[index] if self._adapter is None else self._adapter[0]
            if self._adapter is None:
                return
            try:
                client.load_adapter(*self._adapter)
                return
            except (OSError, VLLMServerError) as error:
                if tries == _TRIES:
                    raise error if isinstance(error, VLLMServerError) else self._error(index, error) from error
                self._unload(client, self._adapter[0])  # it may have been loaded before the answer was lost

    def _unload(self, client: Any, name: str) -> None:
        try:
            client.unload_adapter(name)
        except OSError:  # a server that fails has forgotten it
            pass

    # Replies

    def ask(
        self,
        rows: Sequence[tuple[int, Context]],
        answers: list[Completion | None],
        sampling: Sampling,
        stop_ids: frozenset[int],
    ) -> tuple[list[Completion | None], list[int]]:
        """Send a request for each row that has no answer yet, side by side; rows of one request would share a seed.

        ``rows`` are the process of each row, and its context. Returns the answers, and the servers that lost their
        weights, whose rows have no answer.

        Raises:
            VLLMServerError: If a server does not answer for longer than the patience, or refuses a request.
        """
        places = [(process + context.row) % len(self._clients) for process, context in rows]
        failures: Counter[int] = Counter()
        lost: set[int] = set()
        while missing := [row for row, answer in enumerate(answers) if answer is None and places[row] not in lost]:
            found, errors = self._round([(places[row], rows[row][1]) for row in missing], sampling, stop_ids)
            answers = list(answers)
            for index in sorted({places[row] for row in missing}):
                instance = self._wait(index, errors.get(index))
                if self._instances[index] not in (None, instance):
                    logger.warning(
                        "the vLLM server at %s was started again, without the weights of this run: it gets them, and "
                        "this turn's requests, again",
                        self._clients[index].base_url,
                    )
                    failures[index] = 0
                    if self.adapter_only:
                        self._load(index)
                    else:
                        lost.add(index)
                    continue
                self._instances[index] = instance
                failures[index] += index in errors
                if failures[index] >= _TRIES:
                    raise self._error(index, errors[index]) from errors[index]
                for row, answer in zip(missing, found, strict=True):
                    if places[row] == index:
                        answers[row] = answer
        return answers, sorted(lost)

    def _round(
        self, requests: list[tuple[int, Context]], sampling: Sampling, stop_ids: frozenset[int]
    ) -> tuple[list[Completion | None], dict[int, Exception]]:
        """Each request once: its answer or ``None``, and the last error of each server."""
        errors: dict[int, Exception] = {}

        def send(request: tuple[int, Context]) -> Completion | None:
            index, context = request
            try:
                return reply(self._clients[index], context, sampling, stop_ids)
            except Exception as error:  # errors of requests, and the plain Exception that TRL's client raises
                errors[index] = error
                return None

        with ThreadPoolExecutor(min(AT_A_TIME * len(self._clients), len(requests))) as pool:
            return list(pool.map(send, requests)), errors

    def _wait(self, index: int, cause: Exception | None = None) -> str:
        client, began, told = self._clients[index], time.monotonic(), -math.inf
        since = time.strftime("%H:%M:%S")
        while True:
            try:
                instance: str = client.instance()
            except Exception as error:  # as above
                cause, waited = cause or error, time.monotonic() - began
                if waited >= self._patience:
                    raise self._error(index, cause) from error
                if waited - told >= _EVERY:
                    told = waited
                    logger.warning(
                        "the vLLM server at %s has not answered since %s (%s): see its log and start it again, as it "
                        "was; the run waits up to %.0f s (vllm_server_timeout), of which %.0f are over",
                        *(client.base_url, since, cause, self._patience, waited),
                    )
                time.sleep(min(_PAUSE, max(0.0, self._patience - waited)))
                continue
            if told >= 0:
                logger.warning("the vLLM server at %s answers again", client.base_url)
            return instance

    def _error(self, index: int, cause: Exception) -> VLLMServerError:
        return VLLMServerError(
            f"the vLLM server at {self._clients[index].base_url} failed ({type(cause).__name__}: {cause}); see its "
            "log, start it again (vllm serve MODEL, with this run's model and the options that TRL requires), and "
            "resume from the last checkpoint"
        )


def connected(
    base_url: str, group_port: int = 51216, connection_timeout: float = 0.0, adapter_only: bool = False
) -> Servers:
    """The servers of a list of addresses with commas between them; called where TRL makes its ``VLLMClient``.

    Each has the next port of ``group_port`` for its weights.

    Raises:
        VLLMServerError: If one of them does not answer in ``connection_timeout`` seconds.
    """
    clients = []
    for index, url in enumerate(server_urls(base_url)):
        try:
            clients.append(ServerClient(url, group_port + index, connection_timeout))
        except OSError as error:  # TRL raises the ConnectionError of requests
            raise VLLMServerError(
                f"no vLLM server answers at {url} within {connection_timeout:g} s (vllm_server_timeout); start it "
                "(docs/vllm.md has the commands), or correct vllm_server_base_url"
            ) from error
    return Servers(clients, connection_timeout, adapter_only)


def server_urls(base_url: str) -> list[str]:
    """The addresses of an option with commas between them."""
    return [url.strip() for url in base_url.split(",") if url.strip()]


def on_main(servers: Servers | None, ask: Callable[[Servers], Any], broadcast: Callable[[list[Any]], list[Any]]) -> Any:
    """What ``ask`` gets of the servers in the main process, or its `VLLMServerError`, on all processes."""
    shared: list[Any] = [None, None]
    cause = None
    if servers is not None:
        try:
            shared[0] = ask(servers)
        except Exception as error:  # a mistake of ours as well, which only this process knows of
            cause = error
            known = isinstance(error, VLLMServerError)
            shared[1] = str(error) if known else f"asking vLLM failed ({type(error).__name__}: {error})"
    broadcast(shared)
    answer, failure = shared
    if failure is not None:
        raise VLLMServerError(failure) from cause
    return answer
