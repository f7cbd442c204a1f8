"""Every entry of the hand-checked vectors, compared with what our code makes of its inputs.

An entry is checked number by number: each expected name has to be computed and to agree.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from tests.support.project import VECTORS as VECTOR_FILE
from tests.support.ragen_trl import vectors

VECTORS = json.loads(VECTOR_FILE.read_text(encoding="utf-8"))
# Faults and variants of other implementations, kept in the file for comparison; there is no code for them on purpose.
NOT_OURS = re.compile("wrong|without|std_ddof0|ddof0_eps|code_variant")
# From the inputs of an entry and the names it expects to our numbers by these names.
SECTIONS: dict[str, Callable[[Any, Any], Mapping[str, Any]]] = {
    "gae": vectors.token_level,
    "turn_gae": vectors.turn_level,
    "bilevel_gae": vectors.bi_level,
    "group_advantages": vectors.group_level,
    "vstar": vectors.soft_values,
    "astar_loss": vectors.regression,
    "filter": vectors.filtering,
    "ppo_clip": vectors.surrogate,
    "ppo_sequence": vectors.surrogate_of_trajectories,
    "loss_aggregation": vectors.aggregation,
    "kl_estimators": vectors.kl_estimators,
    "gigpo": vectors.gigpo,
    "mt_grpo": vectors.mt_grpo,
    "masks": vectors.masks,
    "mi_proxy": vectors.mutual_information,
    "collapse_detectors": vectors.collapse_detectors,
}
ENTRIES = [
    pytest.param(name, entry, id=f"{name}-{entry.get('id', index)}")
    for name, entries in VECTORS.items()
    if name != "meta"
    for index, entry in enumerate(entries)
]


def close(found: Any, expected: Any) -> bool:
    """Whether nested lists and mappings agree, number by number, at the file's tolerance."""
    if isinstance(expected, dict):
        return all(close(found[name], value) for name, value in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(close, found, expected))
    if isinstance(expected, (int, float)):
        number = found.item() if isinstance(found, torch.Tensor) else found
        return math.isclose(number, expected, rel_tol=0.0, abs_tol=VECTORS["meta"]["tol"])
    return bool(found == expected)


@pytest.mark.parametrize(("section", "entry"), ENTRIES)
def test_our_code_gives_the_expected_numbers(section: str, entry: dict[str, Any]) -> None:
    expected = entry["expected"] if isinstance(entry["expected"], dict) else {"value": entry["expected"]}
    expected = {name: value for name, value in expected.items() if not NOT_OURS.search(name)}
    found = SECTIONS[section](entry["inputs"], expected)
    for name in expected:
        assert close(found[name], expected[name]), f"{name} is {found[name]}, expected {expected[name]}"
