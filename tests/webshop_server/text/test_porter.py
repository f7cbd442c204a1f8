"""The stemmer, step by step, with the examples of Porter's paper and some of the shop."""

import pytest

from webshop_server.text.porter import stem


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        # 1a: plurals.
        *[("caresses", "caress"), ("ponies", "poni"), ("caress", "caress"), ("cats", "cat"), ("ties", "ti")],
        # 1b: past and participle, and what is restored after them.
        *[("feed", "feed"), ("agreed", "agre"), ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor")],
        *[("sing", "sing"), ("conflated", "conflat"), ("troubled", "troubl"), ("sized", "size"), ("hopping", "hop")],
        *[("tanned", "tan"), ("falling", "fall"), ("hissing", "hiss"), ("fizzed", "fizz"), ("failing", "fail")],
        *[("filing", "file")],
        # 1c: y after a vowel anywhere before it.
        *[("happy", "happi"), ("sky", "sky"), ("toys", "toi")],
        # 2: with 5a where it follows.
        *[("relational", "relat"), ("conditional", "condit"), ("rational", "ration"), ("valenci", "valenc")],
        *[("digitizer", "digit"), ("conformabli", "conform"), ("radicalli", "radic"), ("vileli", "vile")],
        *[("vietnamization", "vietnam"), ("predication", "predic"), ("operator", "oper"), ("feudalism", "feudal")],
        *[("decisiveness", "decis"), ("hopefulness", "hope"), ("formaliti", "formal"), ("sensibiliti", "sensibl")],
        # 3.
        *[("triplicate", "triplic"), ("formative", "form"), ("electriciti", "electr"), ("hopeful", "hope")],
        *[("goodness", "good")],
        # 4: "ion" only after s or t.
        *[("revival", "reviv"), ("allowance", "allow"), ("airliner", "airlin"), ("adjustable", "adjust")],
        *[("replacement", "replac"), ("adjustment", "adjust"), ("dependent", "depend"), ("adoption", "adopt")],
        *[("homologou", "homolog"), ("bowdlerize", "bowdler"), ("cushion", "cushion")],
        # 5.
        *[("probate", "probat"), ("rate", "rate"), ("cease", "ceas"), ("controll", "control"), ("roll", "roll")],
        # The author's later changes.
        *[("as", "as"), ("is", "is"), ("possibly", "possibl"), ("analogi", "analog"), ("geology", "geologi")],
        # y is a vowel after a consonant; what is no English vowel is a consonant.
        *[("syzygy", "syzygi"), ("yes", "ye"), ("caf\u00e9s", "caf\u00e9"), ("\u00e9\u00e9ed", "\u00e9\u00e9ed")],
        *[("1990s", "1990"), ("", ""), ("ies", "i")],
    ],
)
def test_stem(word: str, expected: str) -> None:
    assert stem(word) == expected
