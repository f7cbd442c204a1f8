"""Noun taggers, spaCy by a stand-in."""

import sys
from types import ModuleType, SimpleNamespace

import pytest

from webshop_server.goals.nouns import EveryWord, NounTaggerError, PrecomputedNouns, RuleNouns, SpacyNouns, noun_tagger


def test_every_word_is_the_stub_of_the_reference() -> None:
    assert EveryWord().nouns("Red Shirt, red", known=("shirt",)) == ("red", "shirt,", "red")


@pytest.mark.parametrize(
    ("title", "nouns"),
    [
        ("Women’s Soft Cotton Shirt with 2 Pockets", ("women", "cotton", "shirt", "pockets")),
        ("16-Inch Waterproof Lighted Ceiling Lamps (Black)", ("inch", "ceiling", "lamps")),
        ("Quickly Adjustable Wireless Earrings for the Family", ("earrings", "family")),
        ("", ()),
        ("100 % 1.5", ()),
    ],
)
def test_rules(title: str, nouns: tuple[str, ...]) -> None:
    assert RuleNouns().nouns(title, known=("x",)) == nouns


def test_precomputed_nouns_come_with_the_product() -> None:
    tagger = PrecomputedNouns(otherwise=EveryWord())
    assert tagger.nouns("A Lamp", known=("lamp",)) == ("lamp",)
    assert tagger.nouns("A Lamp", known=()) == ()
    assert tagger.nouns("A Lamp") == ("a", "lamp")
    assert PrecomputedNouns().nouns("The Lamp") == ("lamp",)


@pytest.mark.parametrize("name", ["precomputed", "rules", "every_word"])
def test_a_tagger_is_found_by_its_name(name: str) -> None:
    assert noun_tagger(name).name == name


def test_an_unknown_tagger_is_refused() -> None:
    with pytest.raises(NounTaggerError, match="'adverbs' is unknown; use one of precomputed, rules"):
        noun_tagger("adverbs")


def test_spacy_missing_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(NounTaggerError, match=r"pip install 'ragen-trl\[spacy\]'"):
        noun_tagger("spacy")


def fake_spacy(monkeypatch: pytest.MonkeyPatch, parsed: list[str]) -> None:
    """Installs a spaCy with one model, "toy": capitalised words are proper nouns, "lamp" is a noun."""

    def pipeline(title: str) -> list[SimpleNamespace]:
        parsed.append(title)
        tag = {True: "PROPN", False: "ADJ"}
        return [SimpleNamespace(text=w, pos_="NOUN" if w == "lamp" else tag[w.istitle()]) for w in title.split()]

    def load(model: str) -> object:
        if model != "toy":
            raise OSError(f"no {model}")
        return pipeline

    module = ModuleType("spacy")
    monkeypatch.setattr(module, "load", load, raising=False)
    monkeypatch.setitem(sys.modules, "spacy", module)


def test_spacy_keeps_nouns_and_parses_a_title_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    fake_spacy(monkeypatch, parsed)
    tagger = noun_tagger("spacy:toy")
    assert tagger.name == "spacy:toy"
    assert tagger.nouns("Vhomes nice lamp Vhomes") == tagger.nouns("Vhomes nice lamp Vhomes")
    assert tagger.nouns("Vhomes nice lamp Vhomes", known=("x",)) == ("vhomes", "lamp", "vhomes")
    assert parsed == ["Vhomes nice lamp Vhomes"]


def test_a_missing_model_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_spacy(monkeypatch, [])
    with pytest.raises(NounTaggerError, match="python -m spacy download en_core_web_sm"):
        SpacyNouns()
