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
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import tomllib

TAGGERS = ("precomputed", "rules", "every_word", "spacy")
SPACY_MODEL = "en_core_web_sm"
_CACHED_TITLES = 8192


def word_list(name: str) -> tuple[str, ...]:
    """A list of words.toml, in its order."""
    return tuple(tomllib.loads(Path(__file__).with_name("words.toml").read_text("utf-8"))[name].split())


_WORD = re.compile(r"[^\W\d_][\w']*")
_FUNCTION_WORDS, _ADJECTIVES, _STILL_NOUNS = map(word_list, ("functions", "adjectives", "still_nouns"))
_ADJECTIVE_ENDINGS = ("able", "ible", "ful", "less", "ous", "proof", "resistant", "friendly", "ish", "ly", "ive", "est")
_VERB_ENDINGS = ("ing", "ed")


@dataclass(frozen=True)
class NounTagger:
    """Finds the nouns of a title. Two calls with the same title give the same answer, in any process."""

    name: str  # what summaries call it
    find: Callable[[str], tuple[str, ...]]  # the nouns of a title in lower case, in order, duplicates kept
    reads: bool = False  # whether nouns that came with a product are taken as they are

    def nouns(self, title: str, known: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """The nouns of a title; `known` are those that came with its product, if any."""
        return known if self.reads and known is not None else self.find(title)


def noun_tagger(name: str = "precomputed") -> NounTagger:
    """The tagger of a name, one of `TAGGERS` or "spacy:MODEL".

    Raises:
        ValueError: If the name is unknown or spaCy is missing.

    >>> noun_tagger("every_word").nouns("Red Shirt, red")
    ('red', 'shirt,', 'red')
    >>> noun_tagger("rules").nouns("Women's Long-Sleeve Waterproof Running Shirt with 2 Pockets, Machine Washable")
    ('women', 'sleeve', 'shirt', 'pockets', 'machine')
    """
    if name == "spacy" or name.startswith("spacy:"):
        return _spacy(name.partition(":")[2] or SPACY_MODEL)
    if name in ("precomputed", "rules"):
        return NounTagger(name, _by_rules, reads=name == "precomputed")
    if name == "every_word":
        return NounTagger(name, lambda title: tuple(title.lower().split()))
    raise ValueError(f"noun tagger {name!r} is unknown; use one of {', '.join(TAGGERS)} or spacy:MODEL")


@lru_cache(maxsize=_CACHED_TITLES)
def _by_rules(title: str) -> tuple[str, ...]:
    """What no list and no ending says is something else. Deliberately simple: it knows no context."""
    nouns = []
    for word in _WORD.findall(title.lower().replace("’", "'")):
        word = word.removesuffix("'s").strip("'")
        is_verb = len(word) > 4 and word.endswith(_VERB_ENDINGS)
        is_other = len(word) < 2 or word in _FUNCTION_WORDS or word in _ADJECTIVES or word.endswith(_ADJECTIVE_ENDINGS)
        if word in _STILL_NOUNS or word.removesuffix("s") in _STILL_NOUNS or not (is_verb or is_other):
            nouns.append(word)
    return tuple(nouns)


def _spacy(model: str) -> NounTagger:
    """Asks an installed spaCy pipeline, as the original does."""
    try:
        spacy = importlib.import_module("spacy")
    except ImportError as error:
        raise ValueError("spaCy is not installed; run: pip install 'ragen-trl[spacy]'") from error
    try:
        pipeline = spacy.load(model)
    except OSError as error:
        command = f"python -m spacy download {model}"
        raise ValueError(f"spaCy has no model {model!r}; run: {command}") from error

    @lru_cache(maxsize=_CACHED_TITLES)
    def parsed(title: str) -> tuple[str, ...]:
        return tuple(token.text.lower() for token in pipeline(title) if token.pos_ in ("NOUN", "PROPN"))

    return NounTagger(f"spacy:{model}", parsed)
