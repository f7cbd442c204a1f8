"""Names of arms for the bandits, beside those of `ragen_envs.bandit`: none is among both.

Demonstrations of the twelve pairs that are trained on teach the model to recite these 24 names, and it says them at
other bandits as well. With the many names of `DEMONSTRATED`, made-up ones among them, it learns to read them from the
prompt. `OTHER_PAIRS` ask whether what it has learnt holds for names in general.
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

_STEADY = """
Proofreader PayrollClerk TaxInspector SchoolPrincipal Dietitian Radiographer LabAssistant Surveyor Auditor MailSorter
TollCollector CourtReporter SecurityGuard Midwife Actuary CrossingGuard Seamstress Groundskeeper Housekeeper Lecturer
MuseumGuide OfficeManager Orthodontist Paralegal ParkAttendant Physiotherapist PolicyAdviser Podiatrist Professor
QualityInspector Sexton SpeechTherapist StockKeeper StreetSweeper Bookbinder TicketInspector Toolmaker TramDriver
Upholsterer WaterEngineer WindowCleaner Zoologist Botanist Bailiff CensusTaker Chaplain ClaimsAdjuster CustomsOfficer
Dispatcher Draughtsman Electrician Estimator FileClerk RefuseCollector HealthInspector Indexer InsuranceClerk Labourer
PatentExaminer Organist MeterReader HallPorter SchoolNurse Archaeologist
""".split()
_DARING = """
Novelist RockStar FilmDirector Comedian FashionDesigner WildcatDriller TreasureHunter DayTrader HedgeFundManager
CryptoTrader PokerPlayer Footballer TennisPro Golfer RapArtist Influencer Podcaster Streamer AppDeveloper GameInventor
AngelInvestor Speculator CommoditiesTrader ArtDealer GoldDigger DiamondHunter Matador BullRider RodeoRider RallyDriver
MotorRacer TestPilot BountyHunter Mercenary WarReporter Mountaineer PearlDiver StuntPilot Daredevil TrapezeArtist
FireEater SwordSwallower LionTamer SnakeCharmer StormChaser Restaurateur NightclubOwner FilmProducer PropertyDeveloper
Playwright OperaSinger PopSinger FashionModel TalentScout ToyInventor BiotechFounder RocketBuilder Auctioneer
CasinoOwner RacehorseOwner LotteryPlayer Whaler CrabFisher TruffleHunter
""".split()
OTHER_PAIRS = [[low, high] for low, high in zip(_STEADY, _DARING, strict=True)]
"""64 pairs for ``names=``, (low, high): a steady profession and a daring one, as in RAGEN-2's sets.

RAGEN-2 tests on eight pairs. A model that always takes one name of each pair, for no reason, has five or more of eight
right in one case out of three; what it knows of names in general shows in more of them. The list was written before any
model had played it.
"""
