"""Which episodes have the same context, and so share a place in the KV cache and one row of every forward pass.

The episodes of a group begin with one prompt. Those that sample the same tokens, and are answered the same, go on
sharing; where they sample different tokens, slots in the cache are copied. So a model computes each different context
once, however many episodes have it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ragen_trl.policies.kv_cache import SlotCache
from ragen_trl.policies.stopping import ReplyEnd
from ragen_trl.rollout.interfaces import Request


@dataclass(eq=False)
class Context:
    """What the model has read in one place of the cache.

    Attributes:
        index: Of its row in the cache.
        read: Tokens in the cache, one a slot.
        unfed: Tokens to read after them.
        rows: The open rows that go on from there. Closed ones may have a part of it.
    """

    index: int
    read: list[int] = field(default_factory=list)
    unfed: list[int] = field(default_factory=list)
    rows: "list[Row]" = field(default_factory=list)

    @property
    def length(self) -> int:
        """Number of tokens in the cache."""
        return len(self.read)

    def mark_read(self, count: int | None = None) -> None:
        """The model has read so many of the unfed tokens, or all of them."""
        self.read += self.unfed[:count]
        self.unfed = [] if count is None else self.unfed[count:]

    def continue_with(self, rows: "list[Row]", unfed: list[int]) -> None:
        """These rows go on from here, with these tokens next."""
        self.rows, self.unfed = rows, unfed
        for row in rows:
            row.context, row.length, row.unfed = self, self.length + len(unfed), []


@dataclass(eq=False)
class Row:
    """One episode: its context, its own random generator, and the reply being sampled.

    Attributes:
        random: Draws its tokens.
        context: Begins with its tokens; ``None`` at the beginning of an episode and of a context that is built again.
        length: How many of the context's tokens are its own; others are of rows that went on after it had closed.
        unfed: Its tokens after those.
        ids: The reply.
        logprobs: Of the reply.
        draws: A number in [0, 1) for each token that the reply may have.
        budget: The most tokens that the reply may have.
        open: Whether the reply goes on.
        ended: Whether the model has ended it, and not the budget.
    """

    random: np.random.Generator
    context: Context | None = None
    length: int = 0
    unfed: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    draws: list[float] = field(default_factory=list)
    budget: int = 0
    open: bool = False
    ended: bool = False

    def begin_turn(self, request: Request, max_tokens: int) -> None:
        """A new reply, of at most so many tokens, to what the request brings."""
        if request.context_ids is not None:
            self.context, self.length, self.unfed = None, 0, list(request.context_ids)
        self.unfed.extend(request.new_ids)
        self.ids, self.logprobs, self.open, self.ended = [], [], True, False
        self.draws = self.random.random(max_tokens).tolist()
        self.budget = request.max_tokens(max_tokens)

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of them, with those that the model has not read yet. Asked between replies."""
        read = [] if self.context is None else self.context.read[: self.length]
        return (*read, *self.unfed)

    def append(self, token: int, logprob: float, end: ReplyEnd) -> None:
        """Go on with this token."""
        self.ids.append(token)
        self.logprobs.append(logprob)
        self.unfed.append(token)
        self.ended = end.reached(self.ids)
        self.open = not self.ended and len(self.ids) < self.budget


class SharedContexts:
    """The contexts of a rollout's episodes, one for each sampling seed, and their places in the cache.

    Attributes:
        rows: The episodes that are played, by their number in the rollout.
        contexts: In the order of the cache.
        cache: Keys and values, a row for each context.
    """

    def __init__(self, seeds: Sequence[int] = ()) -> None:
        self.rows = {number: Row(np.random.default_rng(seed)) for number, seed in enumerate(seeds)}
        self.contexts: list[Context] = []
        self.cache = SlotCache(0, most_rows=len(seeds))

    def leave(self, rows: Sequence[int]) -> None:
        """Finished episodes leave, and with them the contexts that no other one has."""
        for finished in rows:
            del self.rows[finished]
        self.arrange()

    def assign_contexts(self, rows: Sequence[Row]) -> list[Context]:
        """Give rows with the same tokens one context, in which no other row reads on, as much of it read as can be.

        A context that several want goes to the rows that have most of it; the others get copies.
        """
        self.arrange()  # contexts that were built again leave before there are copies: never more contexts than rows
        asking = {id(row) for row in rows}
        taken = {id(row.context) for row in self.rows.values() if id(row) not in asking}
        owned: list[tuple[Context, list[Row]]] = []
        others: list[list[Row]] = []
        for group in sorted(alike(rows), key=lambda group: group[0].length, reverse=True):
            context = group[0].context
            if context is None or id(context) in taken:
                others.append(group)
            else:
                owned.append((context, group))
                taken.add(id(context))
        copies = self._copied([(group[0].context or Context(-1), group[0].length) for group in others])
        owned += zip(copies, others, strict=True)
        for context, group in owned:
            del context.read[group[0].length :]  # what rows have read that are not among its own
        for context, group in owned:
            context.continue_with(group, group[0].unfed)
        self.arrange()
        return [context for context, _ in owned]

    def branched(self, contexts: Sequence[Context]) -> list[Context]:
        """After a token was drawn for each row: a context for each different token that open rows go on with.

        The rows of a context's first token keep it, the others get copies at the end of the cache. A context whose rows
        have all closed is left without rows.
        """
        assert self.contexts[-len(contexts) :] == list(contexts), "copies must follow the contexts that they are of"
        branches: list[tuple[Context, list[Row]]] = []
        for context in contexts:
            by_token: dict[int, list[Row]] = {}
            for row in context.rows:
                if row.open:
                    by_token.setdefault(row.ids[-1], []).append(row)
            first, *others = by_token.values() or [[]]
            context.continue_with(first, first[0].unfed if first else [])
            branches += [(context, each) for each in others]
        copies = self._copied([(context, context.length) for context, _ in branches])
        for copy, (_, rows) in zip(copies, branches, strict=True):
            copy.continue_with(rows, rows[0].unfed)
        return [*contexts, *copies]

    def arrange(self, *groups: Sequence[Context]) -> list[list[Context]]:
        """Put these groups of contexts last in the cache, one after the other, and drop contexts that no row has.

        Returns each group in the order of the cache. Contexts that are among their group's places already stay there.
        """
        used = {id(row.context) for row in self.rows.values()}
        chosen = {id(context) for group in groups for context in group}
        others = [each for each in self.contexts if id(each) in used and id(each) not in chosen]
        arranged: list[list[Context]] = []
        begin = 0
        for group in (others, *groups):
            places = range(begin, begin + len(group))
            staying = {context.index: context for context in group if context.index in places}
            moving = iter([context for context in group if context.index not in places])
            arranged.append([staying[place] if place in staying else next(moving) for place in places])
            begin = places.stop
        order = [context for group in arranged for context in group]
        if [context.index for context in order] != list(range(self.cache.num_rows)):
            self.cache.select([context.index for context in order])
        for index, context in enumerate(order):
            context.index = index
        self.contexts = order
        return arranged[1:]

    def _copied(self, sources: Sequence[tuple[Context, int]]) -> list[Context]:
        if not sources:
            return []
        count = len(self.contexts)
        copies = [Context(count + place, source.read[:length]) for place, (source, length) in enumerate(sources)]
        self.contexts += copies
        self.cache.add_rows(len(copies))
        read = [(source.index, copy.index) for (source, _), copy in zip(sources, copies, strict=True) if copy.length]
        longest = max(copy.length for copy in copies)
        self.cache.copy([source for source, _ in read], [copy for _, copy in read], slice(0, longest))
        return copies


def alike(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows with the same tokens together, first the one of which the model has read most."""
    groups: dict[tuple[int, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault(row.tokens, []).append(row)
    return [sorted(group, key=lambda row: row.length, reverse=True) for group in groups.values()]
