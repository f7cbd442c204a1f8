"""The Porter stemmer, with the two changes its author made later, as Lucene's PorterStemFilter applies it.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. Later: "bli" becomes "ble" (where "abli" became
"able"), "logi" becomes "log", and words of one or two letters are left alone. snowballstemmer has neither of them, and
halves only some double letters ("trekking"), so it would rank otherwise.
"""

import re
from collections.abc import Mapping

# In a word written as v (vowel) and c (consonant), its measure m is how often a consonant follows a vowel.
_MEASURE = re.compile("v+c+")


def _pairs(text: str) -> Mapping[str, str]:
    return dict((suffix, other) for suffix, _, other in (pair.partition(">") for pair in text.split()))


# Suffixes of steps 2 and 3 with what replaces them where the measure of what is before them is above 0.
_STEP_2 = _pairs(
    """
    ational>ate tional>tion enci>ence anci>ance izer>ize bli>ble alli>al entli>ent eli>e ousli>ous ization>ize ation>ate
    ator>ate alism>al iveness>ive fulness>ful ousness>ous aliti>al iviti>ive biliti>ble logi>log
    """
)
_STEP_3 = _pairs("icate>ic ative> alize>al iciti>ic ical>ic ful> ness>")
# Suffixes of step 4, which go where that measure is above 1.
_STEP_4 = dict.fromkeys("al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split(), "")


def stem(word: str) -> str:
    """Strips the English suffixes of a word."""
    if len(word) <= 2:
        return word
    # 1a: plurals.
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    # 1b: past and participle.
    suffix = next((suffix for suffix in ("eed", "ed", "ing") if word.endswith(suffix)), "")
    rest = word[: len(word) - len(suffix)]
    if suffix == "eed":
        word = word[:-1] if _measure(rest) > 0 else word
    elif suffix and "v" in _shape(rest):
        word = rest  # without the letter that the suffix doubled, or with the e that it replaced
        if word[-2:-1] == word[-1] and _shape(word)[-1] == "c":
            word = word if word[-1] in "lsz" else word[:-1]
        elif word.endswith(("at", "bl", "iz")) or (_measure(word) == 1 and _ends_short(word)):
            word += "e"
    # 1c.
    if len(word) > 1 and word[-1] == "y" and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    # 2, 3 and 4: the longest suffix is replaced, or nothing if the measure before it is too small.
    for replacements, least in ((_STEP_2, 1), (_STEP_3, 1), (_STEP_4, 2)):
        suffix = next((word[-n:] for n in range(min(7, len(word)), 1, -1) if word[-n:] in replacements), "")
        rest = word[: len(word) - len(suffix)]
        if suffix and _measure(rest) >= least and (suffix != "ion" or rest.endswith(("s", "t"))):
            word = rest + replacements[suffix]
    # 5: a final e goes where the word is long enough without it, and one l of two.
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _ends_short(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word


def _shape(word: str) -> str:
    """The word with c for each consonant and v for each vowel; y is a vowel after a consonant."""
    shape = ""
    for letter in word:
        shape += "v" if letter in "aeiou" or (letter == "y" and shape.endswith("c")) else "c"
    return shape


def _measure(word: str) -> int:
    return len(_MEASURE.findall(_shape(word)))


def _ends_short(word: str) -> bool:
    """Whether the word ends in consonant, vowel, consonant, the last of them not w, x or y."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"
