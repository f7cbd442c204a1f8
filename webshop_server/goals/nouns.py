"""Which words of a title are nouns: what the title score of the reward compares.

The original asks spaCy. Its models are not on PyPI and take half a gigabyte, so there are four taggers here. The name
of the one in use goes into every summary, because scores with different taggers must not be compared:

| name | what it does |
|---|---|
| `precomputed` | reads `Product.nouns`; titles of products without them go to `rules`. Our own catalogues have them |
| `rules` | drops function words, numbers, common adjectives and verb forms; lists and endings, no grammar |
| `every_word` | every word is a noun; the stub of the reference baselines |
| `spacy`, `spacy:MODEL` | exact with the model the original used, `en_core_web_sm`; needs the extra `spacy` |
"""

import importlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Protocol

TAGGERS = ("precomputed", "rules", "every_word", "spacy")
SPACY_MODEL = "en_core_web_sm"
_NOUN_TAGS = frozenset({"NOUN", "PROPN"})
_CACHED_TITLES = 8192

_WORD = re.compile(r"[^\W\d_][\w']*")
_FUNCTION_WORDS = frozenset(
    """
    a about above after all also an and any are as at be both but by can each easily every for from has have his her how
    i if in into is it its just made make makes more most my new no not of off on one only or other our out over per so
    some such than that the their them there these they this those to too under up use used very via was we when which
    while who will with without you your two three four five six
    """.split()
)
_ADJECTIVES = frozenset(
    """
    adult amazing anti aqua beige best better big black blue bright brown casual cheap classic clean clear cold comfy
    cool cute dark deep different double dry durable easy eco elegant extra faux fine firm flat formal free fresh full
    fun funny gentle giant gold good gray great green grey happy hard healthy heavy high hot huge ideal indoor ivory
    khaki large light little long loose low lovely mini modern natural navy non novelty nude old orange original outdoor
    perfect petite pink plus portable premium pretty pure purple quick quiet red regular retro rich round royal safe
    sexy sharp short simple single skinny sleeveless slim small smart smooth soft solid special square stretchy strong
    stylish super sweet tall thick thin tiny tough trendy ultra unique universal vegan vintage warm wet white wide wild
    yellow young
    """.split()
)
_ADJECTIVE_ENDINGS = ("able", "ible", "ful", "less", "ous", "proof", "resistant", "friendly", "ish", "ly", "ive", "est")
_VERB_ENDINGS = ("ing", "ed")
# Nouns that end like adjectives or verbs, as they occur in shops.
_STILL_NOUNS = frozenset(
    """
    adhesive assembly bedding belly building cable ceiling chest clothing coating cooling cushioning dish dressing
    earring family fish flooring forest frosting interest jelly knitting lighting lily lining nest olive padding
    painting piercing plating plumbing polish pudding radish ring sewing seasoning seed serving setting shaving sterling
    string styling stuffing supply table tablet thing training tubing varnish vegetable vest wedding wiring
    """.split()
)


class NounTaggerError(ValueError):
    """A tagger is unknown or what it needs is not installed."""


class NounTagger(Protocol):
    """Finds the nouns of a title. Two calls with the same title give the same answer, in any process."""

    @property
    def name(self) -> str:
        """What summaries call it."""

    def nouns(self, title: str, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Finds the nouns.

        Args:
            title: A product's title.
            known: Nouns that came with the product; only the tagger `precomputed` looks at them.

        Returns:
            The nouns in lower case, in order, duplicates kept.
        """


class EveryWord:
    """Takes every blank-separated word for a noun."""

    name = "every_word"

    def nouns(self, title: str, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """All words. See `NounTagger`.

        >>> EveryWord().nouns("Red Shirt, red")
        ('red', 'shirt,', 'red')
        """
        return tuple(title.lower().split())


class RuleNouns:
    """Takes for a noun what no list and no ending says is something else. Deliberately simple: it knows no context."""

    name = "rules"

    def nouns(self, title: str, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """What is left of the title. See `NounTagger`.

        >>> RuleNouns().nouns("Women's Long-Sleeve Waterproof Running Shirt with 2 Pockets, Machine Washable")
        ('women', 'sleeve', 'shirt', 'pockets', 'machine')
        """
        return _by_rules(title)


@lru_cache(maxsize=_CACHED_TITLES)
def _by_rules(title: str) -> tuple[str, ...]:
    found = (word.removesuffix("'s").strip("'") for word in _WORD.findall(title.lower().replace("’", "'")))
    return tuple(word for word in found if _may_be_noun(word))


def _may_be_noun(word: str) -> bool:
    if word in _STILL_NOUNS or word.removesuffix("s") in _STILL_NOUNS:
        return True
    if len(word) < 2 or word in _FUNCTION_WORDS or word in _ADJECTIVES:
        return False
    return not word.endswith(_ADJECTIVE_ENDINGS) and not (len(word) > 4 and word.endswith(_VERB_ENDINGS))


class PrecomputedNouns:
    """Reads the nouns that came with the product, and asks another tagger where there are none."""

    name = "precomputed"

    def __init__(self, otherwise: NounTagger | None = None) -> None:
        self._otherwise = RuleNouns() if otherwise is None else otherwise

    def nouns(self, title: str, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """The known nouns, or those of the other tagger. See `NounTagger`."""
        return self._otherwise.nouns(title) if known is None else known


class SpacyNouns:
    """Asks a spaCy model, as the original does. Parses a title once and keeps the last few thousand answers."""

    def __init__(self, model: str = SPACY_MODEL) -> None:
        """Loads the model.

        Args:
            model: Name of an installed spaCy pipeline with a tagger.

        Raises:
            NounTaggerError: If spaCy or the model is not installed; says which command installs it.
        """
        try:
            spacy = importlib.import_module("spacy")
        except ImportError as error:
            raise NounTaggerError("spaCy is not installed; run: pip install 'ragen-trl[spacy]'") from error
        try:
            self._pipeline = spacy.load(model)
        except OSError as error:
            command = f"python -m spacy download {model}"
            raise NounTaggerError(f"spaCy has no model {model!r}; run: {command}") from error
        self.name = f"spacy:{model}"
        self._parsed = lru_cache(maxsize=_CACHED_TITLES)(self._parse)

    def _parse(self, title: str) -> tuple[str, ...]:
        tokens: Iterable[Any] = self._pipeline(title)
        return tuple(token.text.lower() for token in tokens if token.pos_ in _NOUN_TAGS)

    def nouns(self, title: str, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """Tokens tagged as common or proper nouns. See `NounTagger`."""
        return self._parsed(title)


def noun_tagger(name: str = "precomputed") -> NounTagger:
    """Makes the tagger of a name.

    Args:
        name: One of `TAGGERS`, or "spacy:MODEL".

    Returns:
        The tagger.

    Raises:
        NounTaggerError: If the name is unknown or spaCy is missing.
    """
    if name == "spacy" or name.startswith("spacy:"):
        return SpacyNouns(name.partition(":")[2] or SPACY_MODEL)
    for tagger in (PrecomputedNouns(), RuleNouns(), EveryWord()):
        if tagger.name == name:
            return tagger
    raise NounTaggerError(f"noun tagger {name!r} is unknown; use one of {', '.join(TAGGERS)} or spacy:MODEL")
