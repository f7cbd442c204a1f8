"""Sessions: what the server remembers of each shopper, bounded in number and in time.

`Sessions` keeps them in this process; `shared_sessions.SharedSessions` has the same methods and keeps them in a file
that several processes share. A session may hold anything that is immutable: the only way to
change one is `update`, which applies a function to the present value, one at a time for each session.
"""

import base64
import hashlib
import hmac
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

DEFAULT_MAX_SESSIONS = 10_000
DEFAULT_TTL = 3600.0
_NONCE_BYTES, _SIGNATURE_BYTES = 18, 9  # multiples of 3, so that base64 needs no padding

Value = TypeVar("Value")
Result = TypeVar("Result")


class UnknownSessionError(KeyError):
    """There is no session with this key: it never was, or it is over."""


class BusySessionError(RuntimeError):
    """Others keep changing this session."""


class SessionStore(Protocol[Value]):
    """What the routes need from a place where sessions are kept."""

    def __len__(self) -> int:
        """Number of sessions."""

    def put(self, key: str, value: Value) -> None:
        """Makes a session, or replaces one."""

    def begin(self, key: str, fresh: Value, is_over: Callable[[Value], bool]) -> tuple[Value, bool]:
        """The session that goes on under this key, or a fresh one where there is none or it is over, in one piece.

        Nothing happens between the look-up and the creation, so that of many callers who begin, one makes the session.

        Args:
            key: The key.
            fresh: What a new session holds.
            is_over: Whether a session must be replaced; quick and pure.

        Returns:
            The session, and whether it is the fresh one. It counts as used.
        """

    def get(self, key: str) -> Value:
        """The session; `UnknownSessionError` if there is none. It counts as used."""

    def update(self, key: str, change: Callable[[Value], tuple[Value, Result]]) -> Result:
        """Replaces a session by what `change` makes of it, and returns what else `change` says.

        No two changes of one session overlap. `change` may be called again if it met another; it must be pure.
        """

    def remove(self, key: str) -> bool:
        """Forgets a session; False if there was none."""


class Tokens:
    """Names of sessions that nobody can guess, and that tell a forgotten session from one that never was.

    A token is a random number and its signature. A token with a right signature and no session belonged to a
    session that expired, was evicted or deleted, or whose server was started again with the same secret.
    """

    def __init__(self, secret: bytes | None = None) -> None:
        """Takes a secret to sign with.

        Args:
            secret: The same in all processes that share sessions; None draws one.
        """
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def new(self) -> str:
        """A fresh token: 36 characters that need no quoting in a URL."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return base64.urlsafe_b64encode(nonce + self._signature(nonce)).decode()

    def is_ours(self, token: str) -> bool:
        """Whether `new` made this token with this secret."""
        try:
            raw = base64.b64decode(token.encode("ascii"), b"-_", validate=True)
        except ValueError:
            return False
        nonce = raw[:_NONCE_BYTES]
        return hmac.compare_digest(raw[_NONCE_BYTES:], self._signature(nonce))

    def _signature(self, nonce: bytes) -> bytes:
        return hmac.new(self._secret, nonce, hashlib.sha256).digest()[:_SIGNATURE_BYTES]


class _Slot(Generic[Value]):
    """A session with its lock and the time of its last use."""

    __slots__ = ("lock", "used", "value")

    def __init__(self, value: Value, used: float) -> None:
        self.lock = threading.Lock()
        self.value = value
        self.used = used


class Sessions(Generic[Value]):
    """Sessions in the memory of this process. Safe to use from many threads.

    The least recently used one is removed when there are too many, and each when it was not used for a while.
    """

    def __init__(
        self,
        max_sessions: int = DEFAULT_MAX_SESSIONS,
        ttl: float = DEFAULT_TTL,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts without sessions.

        Args:
            max_sessions: How many are kept, at least 1.
            ttl: Seconds without use after which one is forgotten.
            clock: Gives seconds.

        Raises:
            ValueError: If one of the bounds is not positive.
        """
        check_bounds(max_sessions, ttl)
        self._max, self._ttl, self._clock = max_sessions, ttl, clock
        self._slots: OrderedDict[str, _Slot[Value]] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Number of sessions."""
        with self._lock:
            self._forget_old(self._clock())
            return len(self._slots)

    def put(self, key: str, value: Value) -> None:
        """Makes a session, or replaces one. See `SessionStore`."""
        with self._lock:
            self._put(key, value)

    def begin(self, key: str, fresh: Value, is_over: Callable[[Value], bool]) -> tuple[Value, bool]:
        """Goes on or makes a session. See `SessionStore`."""
        with self._lock:
            try:
                value = self._used(key).value
            except UnknownSessionError:
                pass
            else:
                if not is_over(value):
                    return value, False
            self._put(key, fresh)
            return fresh, True

    def get(self, key: str) -> Value:
        """The session. See `SessionStore`."""
        return self._slot(key).value

    def update(self, key: str, change: Callable[[Value], tuple[Value, Result]]) -> Result:
        """Changes a session. See `SessionStore`."""
        slot = self._slot(key)
        with slot.lock:
            slot.value, result = change(slot.value)
        return result

    def remove(self, key: str) -> bool:
        """Forgets a session. See `SessionStore`."""
        with self._lock:
            return self._slots.pop(key, None) is not None

    def _slot(self, key: str) -> _Slot[Value]:
        with self._lock:
            return self._used(key)

    def _used(self, key: str) -> _Slot[Value]:
        """The session's place, used now. The lock must be held."""
        now = self._clock()
        self._forget_old(now)
        slot = self._slots.get(key)
        if slot is None:
            raise UnknownSessionError(key)
        slot.used = now
        self._slots.move_to_end(key)
        return slot

    def _put(self, key: str, value: Value) -> None:
        """Makes or replaces a session. The lock must be held."""
        now = self._clock()
        self._slots[key] = _Slot(value, now)
        self._slots.move_to_end(key)
        self._forget_old(now)

    def _forget_old(self, now: float) -> None:
        while self._slots:
            key, slot = next(iter(self._slots.items()))
            if len(self._slots) <= self._max and now - slot.used <= self._ttl:
                return
            del self._slots[key]


def check_bounds(max_sessions: int, ttl: float) -> None:
    """Refuses bounds that would keep nothing.

    Raises:
        ValueError: If one of the two is not positive.
    """
    if max_sessions < 1 or not ttl > 0:
        raise ValueError(f"max_sessions={max_sessions!r} and ttl={ttl!r} must be positive")
