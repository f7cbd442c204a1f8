"""What a player thinks before the choice of an arm: what the names stand for.

A name sounds steady or daring, as most people would say; nothing here looks at what an arm pays, which the player
cannot know. So the thought is the same whichever arm is the better one.
"""

import re
from collections.abc import Sequence

import numpy as np

from ragen_envs.bandit.env import Bandit
from ragen_envs.wording import listed, pick

STEADY = frozenset(
    "Phoenix Teacher Nurse Librarian Accountant Engineer Pharmacist Clerk Technician Planner Postman Banker Gardener "
    "Receptionist Archivist Bookkeeper SocialWorker Mechanic Secretary Cashier CivilServant Baker Plumber Tailor Judge "
    "Farmer Dentist Butcher BusDriver Florist Barber Weaver Waiter Beekeeper Optician Shepherd Carpenter Tutor Janitor "
    "BookSeller Porter Cleaner Translator Bricklayer Butler Cobbler Vet Monk Historian Registrar Curator Notary Typist "
    "Caretaker Usher Bellhop Innkeeper".split()
)
"""Names of a regular life, and a bird that always comes back."""

DARING = frozenset(
    "Dragon Trader StartupFounder Investor StockBroker RealEstateAgent Musician Freelancer Youtuber Artist Pilot "
    "VentureCapitalist Cryptominer Explorer Filmmaker Consultant Photographer GameDesigner Entrepreneur DataScientist "
    "StartupAccelerator Sailor Poet Actor Hunter Diver HorseRider Magician Dancer Juggler Detective Climber Drummer "
    "Racer Smuggler Stuntman Singer TightropeWalker Inventor Boxer Astronaut Knight Wizard Pirate Gambler Spy Skydiver "
    "Surfer Clown Acrobat Trapper Jockey Prospector".split()
)
"""Names of an uncertain life, and a beast."""

_SAYS = {
    True: (
        "sounds steady",
        "stands for safety",
        "suggests a calm and regular life",
        "symbolises security",
        "is steady",
    ),
    False: ("sounds daring", "stands for risk", "suggests a bold venture", "symbolises chance and ambition", "is bold"),
}
_CHOICES = {
    True: ("I prefer what is steady:", "I take the safe name,", "I play it safe and choose", "Steady it is:"),
    False: ("I prefer what is bold:", "I take the risky name,", "I take the risk and choose", "Boldness it is:"),
    None: ("I choose", "I pull", "My choice is", "I pick"),
}


def bandit_thought(env: Bandit, actions: Sequence[str], rng: np.random.Generator) -> str:
    """One or two sentences that end with the first of `actions`; see `thoughts.explain`."""
    chosen = actions[0]
    sounds = {name: name in STEADY for name in env.actions if name in STEADY | DARING}
    told = list(sounds) if len(sounds) < 2 or rng.random() < 0.7 or chosen not in sounds else [chosen]
    if not sounds or chosen not in sounds and rng.random() < 0.5:
        return pick(rng, *_NAMES_ONLY).format(names=listed(env.actions)) + f" {pick(rng, *_CHOICES[None])} {chosen}."
    said = listed([f"{_in_prose(name)} {pick(rng, *_SAYS[sounds[name]])}" for name in told])
    kind = sounds.get(chosen)
    # A choice may say why only where the names differ in it.
    is_told = kind is not None and (len(set(sounds.values())) == 2) and rng.random() < 0.6
    choice = pick(rng, *_CHOICES[kind if is_told else None])
    return f"{said[0].upper()}{said[1:]}. {choice} {chosen}."


_NAMES_ONLY = ("The machines are {names}, and I know only their names.", "I can choose between {names}.")


def _in_prose(name: str) -> str:
    """A name in a sentence.

    Example:
        >>> _in_prose("RealEstateAgent"), _in_prose("Phoenix")
        ('a real estate agent', 'a phoenix')
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
