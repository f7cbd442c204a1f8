"""Names of arms for demonstrations on the bandits: none of them is one of `ragen_envs.bandit`'s.

Demonstrations of the twelve pairs that are trained on teach the model to recite these 24 names, and it says them at
other bandits as well. With many names, and made-up ones among them, it learns to read them from the prompt.
"""

_PROFESSIONS = """
Baker Plumber TaxiDriver Surgeon Sailor Tailor Poet Judge Farmer Dentist SongWriter Miner Butcher Painter BusDriver
Actor Florist Hunter Barber Diver Jeweller Welder Potter Referee HorseRider Weaver Waiter Magician Roofer Chemist
Beekeeper Dancer Glazier Juggler TrainConductor Detective Fisherman Sculptor Optician Climber Shepherd Drummer Carpenter
Racer Tutor Smuggler Locksmith Stuntman Janitor BookSeller Geologist Singer Ranger TightropeWalker Porter Inventor Cook
Boxer Cleaner Astronaut Translator Knight Bricklayer Wizard Butler Pirate Cobbler Gambler Vet Blacksmith Monk Spy Editor
Skydiver Coach TreeSurgeon Historian Surfer Clown Registrar Broker Curator Lumberjack Notary BodyGuard Philosopher
Dealer Typist Acrobat Warden Trapper Statistician Jockey Caretaker Lawyer Usher Producer Brewer WineMaker Cartographer
Firefighter Paramedic Bellhop DogWalker Puppeteer Zookeeper Oboist Falconer Innkeeper Prospector Mathematician Ferryman
""".split()
_WORDS = [name for name in _PROFESSIONS if sum(letter.isupper() for letter in name) == 1]


def _made_up(first: int, second: int) -> str:
    return _WORDS[first % len(_WORDS)] + _WORDS[second % len(_WORDS)]


_HALF = len(_PROFESSIONS) // 2
DEMONSTRATED = [
    *([left, right] for left, right in zip(_PROFESSIONS[:_HALF], _PROFESSIONS[_HALF:], strict=True)),
    *([_made_up(at, at + 17), _made_up(at + 50, at + 90)] for at in range(len(_WORDS))),
]
"""Pairs for ``names=``. Which of a pair is the better arm means nothing: demonstrations pull both equally often."""
