"""``python -m ragen_envs check ID``: what an author wants to know of a text environment before training on it.

Every check plays episodes and gives one `Line`: "ok", "note" (look at it), "FAULT" (mend it) or "skipped". What each
means, and how to mend a fault, is in docs/your_own_environment.md.
"""

import json
import os
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium.utils.env_checker import check_env

from ragen_envs.baselines import Episode, best_action, default_horizon, make_named, random_action, wilson_interval
from ragen_envs.text_env import NoOracleError, TextEnv

GARBAGE = ("", " ", "\n", "no such action", "x" * 100_000, "日本語 \x00 \ud800", "(" * 10_000, "9**9**9**9", "null")
GUESSES = ("0", "1", "yes", "no", "A", "B", "C", "D", "none", "done", "I do not know")
SEEDS = range(6)  # of the checks that compare episodes step by step
ENDLESS = 1000  # actions after which an episode has no end


class Line(NamedTuple):
    """What a check found."""

    check: str
    verdict: str
    finding: str


class Found(Exception):  # noqa: N818  # a verdict, which ends a check early
    """What a check found, if that is not ok."""

    def __init__(self, finding: str, verdict: str = "FAULT") -> None:
        super().__init__(finding)
        self.verdict = verdict


Policy = Callable[[Episode], str]  # chooses the next action
ORACLE: Policy = lambda one: best_action(one.env, one.left)  # noqa: E731


class Subject:
    """The environment to check, and how it is played; for the arguments see `check`."""

    def __init__(self, env_id: str, env_kwargs: Mapping[str, Any], episodes: int, max_actions: int | None) -> None:
        self.env_id, self.env_kwargs, self.episodes = env_id, dict(env_kwargs), episodes
        self.env = self.make()
        self.horizon = max_actions or default_horizon(self.env, 20)
        self.env.reset(seed=0)
        bare: Any = self.env.unwrapped
        self.draws_outcomes = isinstance(bare, TextEnv) and "outcome_seed" in (bare.option_names or ())
        self.actions: tuple[str, ...] = tuple(getattr(bare, "actions", None) or ())

    def make(self) -> gymnasium.Env[Any, Any]:
        """A new environment."""
        return make_named(self.env_id, self.env_kwargs)

    def start(self, seed: int, outcome: int | None = None, env: Any = None) -> Episode:
        """Resets; the seed of outcomes is the one of an evaluated episode if it is not given."""
        given = {"outcome_seed": outcome} if outcome is not None else None
        return Episode.start(env or self.env, seed, given if self.draws_outcomes else {})

    def play(self, policy: Policy, seed: int, most: int | None = None, **start: Any) -> Episode:
        """Plays to the end, or ``most`` actions."""
        return self.start(seed, **start).play(policy, most or self.horizon)

    def replay(self, actions: Sequence[str], seed: int, **start: Any) -> list[str]:
        """The steps of an episode with these actions, as text."""
        return traced(self.play(sequence(actions), seed, len(actions), **start))

    def random(self, one: Episode) -> str:
        """A random action: the environment's own, one of its names, or what its space samples."""
        try:
            return random_action(one.env, one.random)
        except NoOracleError:
            if self.actions:
                return self.actions[one.random.integers(len(self.actions))]
            one.env.action_space.seed(int(one.random.integers(2**31)))
            return str(one.env.action_space.sample())

    @cached_property
    def at_random(self) -> list[Episode]:
        """Episodes of the random policy."""
        return [self.play(self.random, seed) for seed in range(self.episodes)]

    @cached_property
    def by_oracle(self) -> list[Episode]:
        """Episodes of the oracle; none if there is no oracle."""
        try:
            return [self.play(ORACLE, seed) for seed in range(self.episodes)]
        except NoOracleError:
            return []

    @cached_property
    def has_chance(self) -> bool:
        """Whether the seed of outcomes changes what follows a start."""
        return self.draws_outcomes and any(
            self.replay(one.actions, seed, outcome=outcome) != traced(one)
            for seed, one in enumerate(self.at_random[:8])
            for outcome in range(4)
        )


def traced(one: Episode) -> list[str]:
    """The steps as text, to compare."""
    return [repr(step) for step in one.steps]


def sequence(actions: Sequence[str]) -> Policy:
    """Plays the actions in their order, then the last one for ever."""
    return lambda one: actions[min(len(one.actions), len(actions) - 1)]


def must_equal(one: Sequence[str], other: Sequence[str], where: str) -> None:
    """Raises `Found` with the first step that differs."""
    for step, (left, right) in enumerate(zip_longest(one, other, fillvalue="nothing")):
        if left != right:
            raise Found(f"{where}, step {step}: {left[:90]} is then {right[:90]}")


def repeats(subject: Subject) -> str:
    """Again after another episode, in a new environment, and beside one that takes turns with it."""
    for seed in SEEDS:
        one, other = subject.play(subject.random, seed), subject.play(subject.random, seed + 1, env=subject.make())
        must_equal(traced(one), subject.replay(one.actions, seed), f"seed {seed}, after another episode")
        again = subject.replay(one.actions, seed, env=subject.make())
        must_equal(traced(one), again, f"seed {seed}, in a new environment")
        mine, theirs = subject.start(seed), subject.start(seed + 1, env=other.env)
        for taken in range(1, len(one.actions) + 1):
            mine.play(sequence(one.actions), taken)
            theirs.play(sequence(other.actions), taken)
        must_equal(traced(one), traced(mine), f"seed {seed}, in turns with another copy")
    return f"{len(SEEDS)} seeds: again, in a new environment, beside another copy"


def other_process(subject: Subject) -> str:
    """In a new process, with another hash seed."""
    played = [subject.play(subject.random, seed) for seed in SEEDS]
    job = [subject.env_id, subject.env_kwargs, subject.episodes, subject.horizon, [one.actions for one in played]]
    command = [sys.executable, "-c", "from ragen_envs import check; check.replay_elsewhere()"]
    around = {**os.environ, "PYTHONHASHSEED": "12345", "PYTHONPATH": os.pathsep.join([os.getcwd(), *sys.path])}
    done = subprocess.run(command, input=json.dumps(job), env=around, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Found(f"a new process fails: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    for seed, (one, other) in enumerate(zip(played, json.loads(done.stdout), strict=True)):
        must_equal(traced(one), other, f"seed {seed}, in a new process (hash order, time, a file?)")
    return f"{len(SEEDS)} seeds in a process of their own"


def replay_elsewhere() -> None:
    """What the other process does: reads a `Subject` and actions of episodes, and writes their steps."""
    *arguments, episodes = json.load(sys.stdin)
    subject = Subject(*arguments)
    json.dump([subject.replay(actions, seed) for seed, actions in enumerate(episodes)], sys.stdout)


def outcomes(subject: Subject) -> str:
    """A group shares its start; its luck follows from the seed of outcomes, and from nothing else."""
    if not subject.draws_outcomes:
        raise Found("takes no options={'outcome_seed': …}, so all of a group meet the same luck", "note")
    for seed in SEEDS:
        one = subject.play(subject.random, seed, outcome=1)
        must_equal(traced(one), subject.replay(one.actions, seed, outcome=1), f"seed {seed}, same outcome seed")
        other = subject.start(seed, outcome=2)
        must_equal(traced(one)[:1], traced(other), f"seed {seed}, another outcome seed")
        before = repr(other.env.np_random.bit_generator.state)
        other.play(sequence(one.actions), len(one.actions))
        if repr(other.env.np_random.bit_generator.state) != before:
            raise Found("step draws from np_random, so a group shares its luck; use self.outcome_random")
    return "differ by outcome seed" if subject.has_chance else "nothing is left to chance after the start"


def gymnasium_checker(subject: Subject) -> str:
    """Gymnasium's own `check_env`."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        check_env(subject.make().unwrapped)
    if said:
        raise Found(str(said[0].message).splitlines()[0], "note")
    return "no error and no warning"


def returned_values(subject: Subject) -> str:
    """Types, spaces and info of every step."""
    space = subject.env.observation_space
    for one in (*subject.at_random[:16], *subject.by_oracle[:16]):
        for step, (observation, reward, terminated, truncated, info) in enumerate(one.steps):
            faults = {
                f"the observation {str(observation)[:60]!r} is not in {space}": observation not in space,
                f"the reward is {reward!r}": not np.isfinite(reward),
                f"an end is no bool: {terminated!r}, {truncated!r}": {type(terminated), type(truncated)} != {bool},
                "info has no 'success', so the episode counts as failed": step > 0 and "success" not in info,
                f"info['success'] is {info.get('success')!r}": not isinstance(info.get("success", False), bool),
            }
            if fault := next((text for text, holds in faults.items() if holds), ""):
                raise Found(f"step {step} after {one.actions[:step]!r:.60}: {fault}")
    return "texts of the space, finite rewards, bools, info['success']"


def any_string(subject: Subject) -> str:
    """Whatever a model writes is an action or is not, and never an exception."""
    for text in GARBAGE:
        one, shown = subject.start(1, env=subject.make()), f"step({text[:20]!r}{'…' if len(text) > 20 else ''})"
        try:
            observation, reward, _, _, info = one.env.step(text)
        except Exception as error:
            raise Found(f"{shown} raises {type(error).__name__}: {str(error)[:80]}") from error
        if info.get("action_is_valid") is False and (observation != one.steps[0][0] or float(reward) > 0):
            raise Found(f"{shown} is called invalid, and has an effect")
    return f"{len(GARBAGE)} kinds of garbage"


def ends(subject: Subject) -> str:
    """Terminated is the task's end, truncated a limit, and nothing is paid after either."""
    played = (*subject.at_random, *subject.by_oracle)
    if any(one.steps[-1][3] and (one.steps[-1][2] or one.success) for one in played):
        raise Found("the step that ends the task is truncated; only a limit is")
    lost = [len(one.actions) for one in played if one.steps[-1][2] and not one.success]
    if len(lost) > 7 and len(set(lost)) == 1 and lost[0] > 4:
        raise Found(f"all {len(lost)} failures are terminated after {lost[0]} actions; a limit is truncation")
    for policy in (ORACLE, subject.random) if subject.by_oracle else (subject.random,):
        one = subject.play(policy, 0, ENDLESS)
        bare = one.env.unwrapped  # what another kind of environment does after the end is its own affair
        if one.is_over and isinstance(bare, TextEnv) and any(bare.step(action)[1] for action in (*one.actions, "")):
            raise Found("a step after the end is paid")
    if not one.is_over:
        raise Found(f"no end after {ENDLESS} random actions: only the trainer's limits end an episode", "note")
    return "terminated and truncated are told apart; nothing is paid after the end"


def success(subject: Subject) -> str:
    """The oracle solves the task, chance does not, and success pays."""
    known, every = f"random {_rate(subject.at_random)}", [*subject.at_random, *subject.by_oracle]
    if subject.by_oracle:
        known += f", oracle {_rate(subject.by_oracle)}"
        if sum(one.success for one in subject.by_oracle) <= sum(one.success for one in subject.at_random):
            raise Found(f"the oracle solves no more than chance: {known}")
    won, lost = ([one.total for one in every if one.success is kind] for kind in (True, False))
    if won and lost and statistics.fmean(won) <= statistics.fmean(lost):
        raise Found(f"success pays {statistics.fmean(won):.2f} on average, and failure {statistics.fmean(lost):.2f}")
    if not won:
        raise Found(f"nobody ever succeeds: {known}", "FAULT" if subject.by_oracle else "note")
    return f"{known} (n = {subject.episodes})"


def _rate(played: Sequence[Episode]) -> str:
    wins = sum(one.success for one in played)
    return "{:.2f} [{:.2f}, {:.2f}]".format(wins / len(played), *wilson_interval(wins, len(played)))


def blind_actions(subject: Subject) -> str:
    """One action whatever is seen, nothing readable, and whatever has paid again and again."""

    def paid_before(one: Episode) -> str:
        paid = (action for action, step in zip(one.actions, one.steps[1:], strict=True) if step[1] > 0)
        return next(paid, None) or subject.random(one)

    texts = subject.actions or (*GUESSES, *{one.actions[0] for one in subject.at_random[:4]})
    cheats = {f"always {text[:40]!r}": sequence([text]) for text in (*texts, "", "no such action")}
    return judged(subject, {**cheats, "whatever has paid, again and again": paid_before})


def blind_sequence(subject: Subject) -> str:
    """The best sequence, searched on some seeds and played on others."""
    if not 1 < len(subject.actions) <= 32:
        raise Found(f"{len(subject.actions) or 'no'} named actions: nothing to search", "skipped")

    def value(actions: Sequence[str]) -> float:
        seeds = range(subject.episodes, subject.episodes + min(24, subject.episodes))
        return statistics.fmean(subject.play(sequence(actions), seed).total for seed in seeds)

    best = max(([name] * min(subject.horizon, 10) for name in subject.actions), key=value)
    for place in range(len(best)):
        best = max((best, *([*best[:place], name, *best[place + 1 :]] for name in subject.actions)), key=value)
    return judged(subject, {f"always {', '.join(best)}": sequence(best)})


def answer_in_sight(subject: Subject) -> str:
    """What stands in the observation, taken for the answer."""

    def names(text: str) -> list[str]:
        return sorted((name for name in subject.actions if name in text), key=text.rfind)

    def part(read: Callable[[str], list[str]], place: int) -> Policy:
        return lambda one: (read(one.steps[-1][0]) or [""])[place]

    cheats: dict[str, Policy] = {"the observation itself": lambda one: str(one.steps[-1][0])}
    readers: Any = {"action": names} if subject.actions else {"line": str.splitlines, "word": str.split}
    for what, read in readers.items():
        cheats |= {f"the first {what} in sight": part(read, 0), f"the last {what} in sight": part(read, -1)}
    return judged(subject, cheats)


def judged(subject: Subject, cheats: Mapping[str, Policy]) -> str:
    """The best of the policies, a fault if the 95 % interval of its return is past halfway from chance to the oracle.

    It is chosen on half of the seeds and judged on the others. Without an oracle, success in half of them is a fault.
    """
    half = subject.episodes // 2
    name = max(cheats, key=lambda name: sum(subject.play(cheats[name], seed).total for seed in range(half)))
    played = [subject.play(cheats[name], seed) for seed in range(half, subject.episodes)]
    totals = [one.total for one in played]
    low = statistics.fmean(totals) - 1.96 * statistics.stdev(totals) / len(totals) ** 0.5
    chance = statistics.fmean(one.total for one in subject.at_random)
    finding = f"{name} earns {statistics.fmean(totals):.2f}, chance {chance:.2f}"
    if not subject.by_oracle:
        if wilson_interval(sum(one.success for one in played), len(played))[0] > 0.5:
            raise Found(f"{finding}, and succeeds in {_rate(played)}")
        return finding
    best = statistics.fmean(one.total for one in subject.by_oracle)
    finding += f", the oracle {best:.2f}"
    if low > (best if best <= chance else (best + chance) / 2):
        has_one = len({tuple(one.actions) for one in subject.by_oracle}) == 1
        raise Found(f"{finding}{': the task has one answer' if has_one else ''}", "note" if has_one else "FAULT")
    return finding


def stopping_early(subject: Subject) -> str:
    """The oracle's way, but not to its end."""
    if not subject.by_oracle:
        raise Found("there is no oracle", "skipped")
    whole = statistics.fmean(one.total for one in subject.by_oracle)
    for count in range(max(len(one.actions) for one in subject.by_oracle)):
        earned = statistics.fmean(sum(step[1] for step in one.steps[: count + 1]) for one in subject.by_oracle)
        if earned > whole:
            raise Found(f"the oracle earns {whole:.2f}, and {earned:.2f} if it stops after {count} actions")
    return f"the oracle earns most at its end, {whole:.2f}"


def unwinnable(subject: Subject) -> str:
    """The share of states from which the oracle loses: at the start, and after three random actions."""
    if not subject.by_oracle or subject.has_chance:
        raise Found("with chance a loss proves nothing" if subject.by_oracle else "there is no oracle", "skipped")
    mixed = [
        subject.play(subject.random, seed, 3).play(ORACLE, subject.horizon + 3) for seed in range(subject.episodes)
    ]
    starts = statistics.fmean(not one.success for one in subject.by_oracle)
    later = [not one.success for one in mixed if len(one.actions) > 3] or [False]
    finding = f"{starts:.2f} of the starts, {statistics.fmean(later):.2f} after three random actions"
    if starts:
        raise Found(f"{finding}; a group that starts there learns nothing", "FAULT" if starts > 0.1 else "note")
    return finding


def lengths(subject: Subject) -> str:
    """Characters of observations over the longest episode."""
    sizes = [len(step[0]) for step in max(subject.at_random, key=lambda one: len(one.steps)).steps]
    finding = f"{sizes[0]} characters first, {max(sizes)} at most, {sizes[-1]} after {len(sizes) - 1} actions"
    if len(sizes) > 4 and all(one < other for one, other in pairwise(sizes)) and sizes[-1] > 3 * sizes[0]:
        raise Found(f"{finding}: each holds those before it, and a context holds them all", "note")
    return finding


CHECKS: Mapping[str, Callable[[Subject], str]] = {
    "same seed": repeats,
    "another process": other_process,
    "luck of a group": outcomes,
    "Gymnasium's checker": gymnasium_checker,
    "returned values": returned_values,
    "any string": any_string,
    "the end": ends,
    "who succeeds": success,
    "cheat: one action": blind_actions,
    "cheat: one sequence": blind_sequence,
    "cheat: in sight": answer_in_sight,
    "cheat: stop early": stopping_early,
    "nothing to win": unwinnable,
    "length": lengths,
}


def check(
    env_id: str, env_kwargs: Mapping[str, Any] | None = None, episodes: int = 64, max_actions: int | None = None
) -> Iterator[Line]:
    """Check an environment, one line after the other; ``episodes`` is how many each policy plays, at least 8.

    `EnvError` if the environment cannot be made.
    """
    subject = Subject(env_id, env_kwargs or {}, episodes, max_actions)
    for name, look in CHECKS.items():
        try:
            yield Line(name, "ok", look(subject))
        except Found as found:
            yield Line(name, found.verdict, str(found))
        except Exception as error:  # an environment that fails as it is played is what this looks for
            yield Line(name, "FAULT", f"{type(error).__name__}: {str(error)[:200]}")
