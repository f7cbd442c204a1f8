"""The Porter stemmer, with the two changes its author made later, as Lucene's PorterStemFilter applies it.

M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. Later: "bli" becomes "ble" (where "abli" became
"able"), "logi" becomes "log", and words of one or two letters are left alone.
"""

import re
from collections.abc import Container, Mapping

# In a word written as v (vowel) and c (consonant), its measure m is how often a consonant follows a vowel.
_MEASURE = re.compile("v+c+")
_VOWELS = frozenset("aeiou")

# Suffixes of steps 2 and 3 with what replaces them where the measure of what is before them is above 0.
_STEP_2: Mapping[str, str] = {
    "ational": "ate",
    "tional": "tion",
    "enci": "ence",
    "anci": "ance",
    "izer": "ize",
    "bli": "ble",
    "alli": "al",
    "entli": "ent",
    "eli": "e",
    "ousli": "ous",
    "ization": "ize",
    "ation": "ate",
    "ator": "ate",
    "alism": "al",
    "iveness": "ive",
    "fulness": "ful",
    "ousness": "ous",
    "aliti": "al",
    "iviti": "ive",
    "biliti": "ble",
    "logi": "log",
}
_STEP_3: Mapping[str, str] = {
    "icate": "ic",
    "ative": "",
    "alize": "al",
    "iciti": "ic",
    "ical": "ic",
    "ful": "",
    "ness": "",
}
# Suffixes of step 4, which go where that measure is above 1.
_STEP_4 = frozenset("al ance ence er ic able ible ant ement ment ent ion ou ism ate iti ous ive ize".split())


def stem(word: str) -> str:
    """Strips the English suffixes of a word.

    Args:
        word: In lower case. Whatever is no vowel of English counts as a consonant.

    Returns:
        The stem, which need not be a word.
    """
    if len(word) <= 2:
        return word
    word = _plural(word)
    word = _past_and_participle(word)
    if len(word) > 1 and word[-1] == "y" and "v" in _shape(word[:-1]):
        word = word[:-1] + "i"
    word = _replace(word, _STEP_2)
    word = _replace(word, _STEP_3)
    suffix = _longest_suffix(word, _STEP_4)
    if suffix and (suffix != "ion" or word[:-3].endswith(("s", "t"))) and _measure(word[: -len(suffix)]) > 1:
        word = word[: -len(suffix)]
    return _final_e_and_l(word)


def _shape(word: str) -> str:
    """The word with c for each consonant and v for each vowel; y is a vowel after a consonant."""
    letters: list[str] = []
    for letter in word:
        vowel = letter in _VOWELS or (letter == "y" and letters[-1:] == ["c"])
        letters.append("v" if vowel else "c")
    return "".join(letters)


def _measure(word: str) -> int:
    """Porter's m: the number of sequences of vowels followed by consonants."""
    return len(_MEASURE.findall(_shape(word)))


def _ends_double(word: str) -> bool:
    """Whether the word ends in a doubled consonant."""
    return len(word) > 1 and word[-1] == word[-2] and _shape(word)[-1] == "c"


def _ends_short(word: str) -> bool:
    """Whether the word ends in consonant, vowel, consonant, the last of them not w, x or y."""
    return _shape(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _plural(word: str) -> str:
    """Step 1a."""
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past_and_participle(word: str) -> str:
    """Step 1b."""
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    for suffix in ("ed", "ing"):
        rest = word[: -len(suffix)]
        if word.endswith(suffix):
            return _restored(rest) if "v" in _shape(rest) else word
    return word


def _restored(word: str) -> str:
    """What is left in step 1b, with the e that the suffix replaced, or without the letter that it doubled."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _ends_double(word):
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _longest_suffix(word: str, suffixes: Container[str]) -> str:
    """The longest of the suffixes that the word ends in, or "" if there is none."""
    for length in range(min(7, len(word)), 1, -1):
        if word[-length:] in suffixes:
            return word[-length:]
    return ""


def _replace(word: str, replacements: Mapping[str, str]) -> str:
    """Steps 2 and 3: replaces the longest suffix that is there, or nothing if the measure before it is 0."""
    suffix = _longest_suffix(word, replacements)
    rest = word[: -len(suffix)]
    return rest + replacements[suffix] if suffix and _measure(rest) > 0 else word


def _final_e_and_l(word: str) -> str:
    """Step 5: a final e goes where the word is long enough without it, and one l of two."""
    rest = word[:-1]
    if word.endswith("e"):
        measure = _measure(rest)
        if measure > 1 or (measure == 1 and not _ends_short(rest)):
            word = rest
    if word.endswith("ll") and _measure(word) > 1:
        return word[:-1]
    return word
