"""How well an action follows from the thought before it: a small bonus that a trainer may add, never part of success.

A model that is paid only for actions may write anything as its thought. This looks, by words alone, whether the end of
the thought speaks of what is then done. Only the last `LAST_WORDS` words count, because a decision stands at the end,
and a thought that lists every action must not fit them all. Left out: any judgement of whether the thought is right.
"""

import re

MAX_BONUS = 0.2
TARGET_SHARE = 0.75  # of the bonus: what is acted upon is named; the rest: what is done with it
LAST_WORDS = 40

_ACTION = re.compile(r"\s*(search|click|filter|buy)\s*(?:\[(.*)\]|:(.*))\s*", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"\w+(?:[.']\w+)*")
_CLAUSE_END = re.compile(r"[.!?;,\n]\s|\bbut\b|\bso\b|\binstead\b")
_NEGATION = re.compile(r"\b(?:not|never|avoid|don't|doesn't|isn't|won't|shouldn't|cannot|can't)\b")
_FILLERS = frozenset(
    "a an and are as at by for from i in is it me my of on or some that the this to under with".split()
)
# Words that announce an action, by what is done. Buttons of the shop have lists of their own.
_INTENTS: dict[str, frozenset[str]] = {
    "search": frozenset("search searching find look looking query results".split()),
    "filter": frozenset("filter filtering narrow limit only below under".split()),
    "buy": frozenset("buy buying purchase order".split()),
    "back": frozenset("back return search again other another different".split()),
    "page": frozenset("next previous page more further back".split()),
    "click": frozenset("click clicking open choose select pick check view read option set".split()),
}
_BUTTONS = {"buy now": "buy", "back to search": "back", "next >": "page", "< prev": "page"}


def consistency(thought: str, action: str) -> float:
    """Rates one reply.

    Three quarters of the bonus go by the share of the action's words (a query's, a product id, an option value) that
    the end of the thought names, one quarter to a word that announces this kind of action. A clause with a negation
    ("not the red one") counts for nothing. The buttons of the shop (buy now, back to search, next, prev) have no words
    of their own and go by the announcing word alone.

    Args:
        thought: What the model wrote before the action; may be empty.
        action: `search[...]`, `click[...]`, `filter[...]` or `search:...`, `click:...`, `buy:...`.

    Returns:
        0 to `MAX_BONUS`; 0 for what is no action. A bonus for each turn: average it over an episode, do not add it up.

    >>> consistency("The price fits. I will buy it now.", "click[Buy Now]")
    0.2
    >>> consistency("The price fits. I will buy it now.", "click[blue]")
    0.0
    """
    match = _ACTION.fullmatch(action)
    if match is None:
        return 0.0
    name, argument = match[1].lower(), (match[2] if match[3] is None else match[3]).strip().lower()
    said = _said(thought.lower())
    button = _BUTTONS.get(argument) if name == "click" else None
    announced = bool(said & _INTENTS[button or name])
    if button is not None:
        return MAX_BONUS if announced else 0.0
    wanted = set(_WORD.findall(argument)) - _FILLERS
    if not wanted or not said & wanted:
        return 0.0
    return MAX_BONUS * (TARGET_SHARE * len(said & wanted) / len(wanted) + (1 - TARGET_SHARE) * announced)


def _said(thought: str) -> set[str]:
    """The words of the thought's end, without those of clauses that deny something."""
    clauses = [clause for clause in _CLAUSE_END.split(thought.replace("’", "'"))]
    spoken: list[str] = []
    for clause in reversed(clauses):
        if len(spoken) >= LAST_WORDS:
            break
        if not _NEGATION.search(clause):
            spoken += reversed(_WORD.findall(clause))
    return set(spoken[:LAST_WORDS])
