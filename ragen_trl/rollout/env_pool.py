"""The environments that rollouts share: made once, since a store is slow to start, and replaced if they fail."""

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ragen_envs import AgentTurns
from ragen_trl.config.checks import context_function
from ragen_trl.errors import OptionError
from ragen_trl.rollout.env_executor import EnvExecutor, Failure
from ragen_trl.rollout.env_specs import EnvMaker, EnvSpec
from ragen_trl.rollout.environments import make_turns
from ragen_trl.rollout.interfaces import Policy, Start, TurnEnv
from ragen_trl.rollout.loop import play
from ragen_trl.trajectory import Trajectory

if TYPE_CHECKING:
    from ragen_trl.config.starpo import StarPOConfig

logger = logging.getLogger(__name__)


@dataclass
class _Made:
    spec: EnvSpec
    turns: AgentTurns
    hangs: bool = False


class EnvPool:
    """Environments that are made once and played again in every rollout.

    Args:
        args: Turn limits, penalties and reply format of all environments, and how they are stepped.
        adapt: Called with each environment that is made.
    """

    def __init__(self, args: "StarPOConfig", adapt: Callable[[AgentTurns], None] = lambda turns: None) -> None:
        self._args, self._adapt = args, adapt
        self._executor = EnvExecutor(args.env_workers, args.env_timeout)
        self._made: dict[tuple[str | EnvMaker, str], list[_Made]] = {}

    def take(self, specs: Sequence[EnvSpec]) -> list[AgentTurns]:
        """One environment per row, in order; all may be played side by side.

        Equal rows get different instances. The next call returns the same ones again, but for those that hang.

        Raises:
            OptionError: If a function returns an environment that it returned before, or one whose replies start with
                another tag than the replies of the environments made before.
            gymnasium.error.NameNotFound: If an id is unknown.
        """
        used: Counter[tuple[str | EnvMaker, str]] = Counter()
        taken = []
        for spec in specs:
            made, place = self._made.setdefault(spec.key, []), used[spec.key]
            if place == len(made):
                made.append(_Made(spec, self._make(spec)))
            elif made[place].hangs:
                made[place] = _Made(spec, self._make(spec))
            taken.append(made[place].turns)
            used[spec.key] += 1
        return taken

    def play(self, envs: Sequence[TurnEnv], policy: Policy, starts: Sequence[Start]) -> list[Trajectory]:
        """`loop.play` in environments of this pool, with the configuration's options. Those that fail are replaced.

        After Ctrl-C the pool makes new ones: threads that were abandoned may still be inside the old ones.
        """
        args = self._args
        try:
            return play(
                envs,
                policy,
                starts,
                max_length=args.max_completion_length,
                executor=self._executor,
                cut_penalty=args.cut_penalty,
                renew=self.replace,
                window=args.window_turns,
                batch_size=args.rollout_batch_size,
                context=None if args.context is None else context_function(args.context),
            )
        except BaseException as error:
            if not isinstance(error, Exception):
                self._made.clear()  # and none is closed, as where a thread hangs
            raise

    def replace(self, failed: TurnEnv, failure: Failure) -> AgentTurns:
        """Make a new environment instead of one that failed, and hand it out from now on.

        An environment that crashed stays if no other can be made; otherwise it is closed, in a thread, because that may
        take any time. One that hangs is never handed out again and not closed: a thread is still inside it.
        """
        made = next(made for made in self._all() if made.turns is failed)
        made.hangs = failure.error is None
        new = self._make(made.spec)
        if not made.hangs and self._args.env_workers:
            threading.Thread(target=_close, args=(made.turns,), daemon=True).start()  # its crash was logged
        elif not made.hangs:
            _close(made.turns)  # it may have to stay in the thread that made it
        made.turns, made.hangs = new, False
        return new

    def close(self) -> None:
        """Close all environments but those that hang. The pool can be used again."""
        for made in self._all():
            if not made.hangs:
                _close(made.turns)
        self._made.clear()

    def _all(self) -> list[_Made]:
        return [made for of_key in self._made.values() for made in of_key]

    def _make(self, spec: EnvSpec) -> AgentTurns:
        turns, others = make_turns(spec.env, self._args, spec.kwargs), [made.turns for made in self._all()]
        if any(turns.unwrapped is other.unwrapped for other in others):
            raise OptionError(
                f"the function {spec.label} returned an environment that it had returned before, but several are "
                "played at the same time; make a new one in every call"
            )
        if self._args.force_reply_prefix and any(turns.reply_prefix != other.reply_prefix for other in others):
            raise OptionError(
                f"replies to {spec.label} start with {turns.reply_prefix}, and replies to the other environments with "
                f"{others[0].reply_prefix}, but the same prefix is forced on all; make them equal, or set "
                "force_reply_prefix=False"
            )
        self._adapt(turns)
        return turns


def _close(turns: AgentTurns) -> None:
    try:
        turns.close()
    except Exception as error:  # its results are there, and nobody plays it again
        logger.warning("an environment could not be closed: %r", error)
