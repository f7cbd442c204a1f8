"""What a thought in a shop is worth: does the action follow from its words?

Only the last `LAST_WORDS` words count, because a decision comes at the end, and a thought that lists every action must
not match them all. A trainer may add this as a small bonus; success ignores it.
"""

import re

MAX_BONUS = 0.2
TARGET_SHARE = 0.75  # of the bonus, for naming the target of the action; the rest is for announcing the action
LAST_WORDS = 40

_ACTION = re.compile(r"\s*(search|click|filter|buy)\s*(?:\[(.*)\]|:(.*))\s*", re.DOTALL | re.IGNORECASE)
_WORD = re.compile(r"\w+(?:[.']\w+)*")
_CLAUSE_END = re.compile(r"[.!?;,\n]\s|\bbut\b|\bso\b|\binstead\b")
_NEGATION = re.compile(r"\b(?:not|never|avoid|don't|doesn't|isn't|won't|shouldn't|cannot|can't)\b")
_FILLERS = frozenset(
    "a an and are as at by for from i in is it me my of on or some that the this to under with".split()
)
# Words that announce each kind of action. The buttons of the shop have their own lists.
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

    Three quarters of the bonus are multiplied by the share of the action's words (of a query, a product id or an option
    value) that the end of the thought names. One quarter is for a word that announces this kind of action. A clause
    with a negation ("not the red one") does not count. The buttons of the shop (buy now, back to search, next, prev)
    have no words to name, so that only the announcing word counts.

    Args:
        thought: What the model wrote before the action; may be empty.
        action: `search[...]`, `click[...]`, `filter[...]` or `search:...`, `click:...`, `buy:...`.

    Returns:
        From 0 to `MAX_BONUS`; 0 if the text is not an action of a shop, so always 0 in other games. The bonus is for
        one turn: average it over an episode.

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
    """The words at the end of the thought, without those of clauses with a negation."""
    clauses = _CLAUSE_END.split(thought.replace("’", "'"))
    spoken: list[str] = []
    for clause in reversed(clauses):
        if len(spoken) >= LAST_WORDS:
            break
        if not _NEGATION.search(clause):
            spoken += reversed(_WORD.findall(clause))
    return set(spoken[:LAST_WORDS])
