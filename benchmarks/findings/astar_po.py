"""The claims of A*-PO (arXiv 2505.20686, Table of MATH training): one turn there, whole episodes here."""

from findings.claims import Claim, Pair
from findings.measures import CPU, DISTANCE, MEMORY

_PAPER = "A*-PO"
_GAMES = ("bandit", "frozenlake", "sokoban")
_GRPO = Pair("and GRPO", "astar_po", "astar_po", "starpo", (*_GAMES, "toyshop"))
_PPO = Pair("and PPO", "astar_po", "astar_po", "starpo_gae", _GAMES)
# At one commit, on one machine, from one warm start, which the first ones are not in these games.
_AGAIN = ("frozenlake", "toyshop")
_GRPO_AGAIN = Pair("and GRPO, at one commit", "astar_po_settings", "astar_po", "starpo", _AGAIN)
_FROM_GRPO_AGAIN = Pair("and GRPO, at one commit", "astar_po_settings", "starpo", "astar_po", _AGAIN)
_FROM_GRPO = Pair("and GRPO", "astar_po", "starpo", "astar_po", (*_GAMES, "toyshop"))
_FROM_PPO = Pair("and PPO", "astar_po", "starpo_gae", "astar_po", _GAMES)

CLAIMS = (
    Claim(
        "astar_po_is_as_good",
        _PAPER,
        "MATH table",
        "A*-PO reaches what GRPO and PPO reach: MATH500 57.8 against 58.0 and 57.0 (1.5B), 76.2 against "
        "73.2 and 74.4 (7B).",
        (_GRPO, _GRPO_AGAIN, _PPO),
        kind="no less",
    ),
    Claim(
        "astar_po_is_quicker",
        _PAPER,
        "MATH table",
        "It takes half of the time: 6.9, 8.8 and 11.0 hours against 15.0, 18.3 and 20.2 (GRPO), 10.8, "
        "13.6 and 20.5 (PPO).",
        (_FROM_GRPO, _FROM_GRPO_AGAIN, _FROM_PPO),
        measure=CPU,
        effect=1.5,
    ),
    Claim(
        "astar_po_stays_near",
        _PAPER,
        "MATH table",
        "It stays nearest to the reference: KL 0.07 to 0.08, GRPO 0.09 to 0.17, PPO 0.11 to 0.15.",
        (_FROM_GRPO, _FROM_GRPO_AGAIN, _FROM_PPO),
        measure=DISTANCE,
        effect=1.25,
    ),
    Claim(
        "astar_po_saves_memory",
        _PAPER,
        "MATH table",
        "Its peak of memory is below PPO's: 76.6 against 92.8 % (7B).",
        (_FROM_PPO,),
        measure=MEMORY,
        effect=1.2,
    ),
)
