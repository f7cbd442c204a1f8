"""What is wrong with an episode in a store: nothing bought, or in which way what was bought is not what was wanted."""

from collections.abc import Sequence

from ragen_envs.webshop.session import Answer

UNBOUGHT = ("no purchase",)
"""Before a purchase."""
UNTOLD = ("wrong purchase",)
"""After a purchase that scores less than 1, where a server tells the score only."""
_LOOP = 3  # searches in a row


def faults(answer: Answer, played: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with an episode now.

    Args:
        answer: The store's last answer.
        played: The valid actions so far.

    Returns:
        () after the right purchase. Before a purchase "no purchase", and "search loop" if one search was sent twice or
        three were sent in a row. After another purchase what the store says: those that hold of "wrong kind", "wrong
        color", "wrong size", "wrong attribute", "wrong option" and "too dear", or `UNTOLD`.
    """
    if answer.done:
        return answer.faults
    return (*UNBOUGHT, *(["search loop"] * _is_loop(played)))


def _is_loop(played: Sequence[str]) -> bool:
    in_a_row, sent = 0, set[str]()
    for action in played:
        is_search = action.startswith("search[")
        in_a_row = in_a_row + 1 if is_search else 0
        if in_a_row == _LOOP or (is_search and action in sent):
            return True
        sent.add(action)
    return False
