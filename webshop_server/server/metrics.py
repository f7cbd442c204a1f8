"""Counts what the server does and writes it as Prometheus text.

The numbers are one row of a table with a row for each process. Where several processes share the table, each adds to
its own row and any of them writes the sum, so it does not matter which one answers.
"""

import mmap
import threading
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
_STATUSES = ("2xx", "3xx", "4xx", "5xx")
_COUNTERS = ("sessions_created", "steps", "purchases")
_HELP = {
    "sessions_created": "Sessions made, by the API or by a visit to a start page.",
    "steps": "Actions taken through the API.",
    "purchases": "Purchases made.",
}
_COLUMNS = (*_STATUSES, *_COUNTERS, "seconds", *(f"le {bound}" for bound in SECONDS), "le +Inf")
_AT = {name: column for column, name in enumerate(_COLUMNS)}


def shared_table(processes: int) -> NDArray[np.float64]:
    """Makes a table that processes forked from this one share.

    Args:
        processes: Number of rows.

    Returns:
        Zeros of shape (processes, columns).
    """
    memory = mmap.mmap(-1, processes * len(_COLUMNS) * 8)
    return np.frombuffer(memory, dtype=np.float64).reshape(processes, len(_COLUMNS))


class Metrics:
    """The counters of one process.

    Attributes:
        in_flight: Requests that have come and are not answered yet.
        stopping: Set when the server is stopped: from then on no request is answered.
    """

    def __init__(self, table: NDArray[np.float64] | None = None) -> None:
        """Starts from what is in the table, in its first row.

        Args:
            table: From `shared_table`; None makes one for this process alone.
        """
        self._table = shared_table(1) if table is None else table
        self.use_row(0)
        self._lock = threading.Lock()
        self.in_flight = 0
        self.stopping = False

    def use_row(self, row: int) -> None:
        """Counts in another row from now on, as a process does that was forked."""
        self._row = self._table[row]

    def begin(self) -> None:
        """A request has come."""
        with self._lock:
            self.in_flight += 1

    def end(self, status: int, seconds: float) -> None:
        """A request was answered."""
        with self._lock:
            self.in_flight -= 1
            self._row[status // 100 - 2] += 1
            self._row[_AT["seconds"]] += seconds
            self._row[_AT["le +Inf"] - len(SECONDS) + bisect_left(SECONDS, seconds)] += 1

    def count(self, name: str) -> None:
        """Adds 1 to one of the counters: "sessions_created", "steps", "purchases"."""
        with self._lock:
            self._row[_AT[name]] += 1

    def text(self, sessions: int) -> str:
        """All numbers of all processes.

        Args:
            sessions: Number of sessions now.

        Returns:
            Text in Prometheus' format 0.0.4.
        """
        total = dict(zip(_COLUMNS, self._table.sum(axis=0).tolist(), strict=True))
        lines = ["# HELP webshop_requests_total Requests answered.", "# TYPE webshop_requests_total counter"]
        lines += [f'webshop_requests_total{{status="{status}"}} {total[status]:.0f}' for status in _STATUSES]
        for name in _COUNTERS:
            lines += [f"# HELP webshop_{name}_total {_HELP[name]}", f"# TYPE webshop_{name}_total counter"]
            lines.append(f"webshop_{name}_total {total[name]:.0f}")
        lines += ["# HELP webshop_sessions Sessions now.", "# TYPE webshop_sessions gauge"]
        lines.append(f"webshop_sessions {sessions}")
        lines += ["# HELP webshop_request_seconds Time to answer.", "# TYPE webshop_request_seconds histogram"]
        below = 0.0
        for bound in (*map(str, SECONDS), "+Inf"):
            below += total[f"le {bound}"]
            lines.append(f'webshop_request_seconds_bucket{{le="{bound}"}} {below:.0f}')
        lines += [f"webshop_request_seconds_sum {total['seconds']:.6f}", f"webshop_request_seconds_count {below:.0f}"]
        return "\n".join(lines) + "\n"
