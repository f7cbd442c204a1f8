"""Every entry of the hand-checked vectors, compared with what our code makes of its inputs.

An entry is checked number by number: each expected name that we compute has to agree. `RAGEN_VECTORS` may name another
file of the same form, whose entries then take the place of ours; what it has beyond the forms and names known here is
reported as skipped, after all else has been compared. In our own file nothing is skipped.
"""

import json
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.project import VECTORS as VECTOR_FILE
from tests.support.ragen_trl import vector_advantages, vector_losses

OTHER_FILE = os.environ.get("RAGEN_VECTORS")
VECTORS = json.loads(Path(OTHER_FILE or VECTOR_FILE).read_text(encoding="utf-8"))
# Faults and variants of other implementations, kept in the file for comparison; there is no code for them on purpose.
NOT_OURS = re.compile("wrong|without|std_ddof0|ddof0_eps|code_variant")
# From the inputs of an entry and the names it expects to our numbers by these names.
SECTIONS: dict[str, Callable[[Any, Any], Mapping[str, Any]]] = {
    "gae": vector_advantages.token_level,
    "turn_gae": vector_advantages.turn_level,
    "bilevel_gae": vector_advantages.bi_level,
    "group_advantages": vector_advantages.group_level,
    "vstar": vector_losses.soft_values,
    "astar_loss": vector_losses.regression,
    "filter": vector_advantages.filtering,
    "ppo_clip": vector_losses.surrogate,
    "ppo_sequence": vector_losses.surrogate_of_trajectories,
    "loss_aggregation": vector_losses.aggregation,
    "kl_estimators": vector_losses.kl_estimators,
    "gigpo": vector_advantages.gigpo,
    "mt_grpo": vector_advantages.mt_grpo,
    "masks": vector_advantages.masks,
    "mi_proxy": vector_losses.mutual_information,
    "collapse_detectors": vector_losses.collapse_detectors,
}
ENTRIES = [
    pytest.param(name, entry, id=f"{name}-{entry.get('id', index)}")
    for name, entries in VECTORS.items()
    if name in SECTIONS
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


def computed(section: str, inputs: dict[str, Any], expected: dict[str, Any]) -> Mapping[str, Any]:
    try:
        return SECTIONS[section](inputs, expected)
    except KeyError as missing:
        if OTHER_FILE:
            pytest.skip(f"an entry of a form not known here: it has no {missing}, but {sorted(inputs)}")
        raise


def test_every_section_has_a_check() -> None:
    assert set(VECTORS) - {"meta"} <= set(SECTIONS)


@pytest.mark.parametrize(("section", "entry"), ENTRIES)
def test_our_code_gives_the_expected_numbers(section: str, entry: dict[str, Any]) -> None:
    expected = entry["expected"] if isinstance(entry["expected"], dict) else {"value": entry["expected"]}
    expected = {name: value for name, value in expected.items() if not NOT_OURS.search(name)}
    found = computed(section, entry["inputs"], expected)
    for name in expected.keys() & found.keys():
        assert close(found[name], expected[name]), f"{name} is {found[name]}, expected {expected[name]}"
    unknown = sorted(expected.keys() - found.keys())
    if OTHER_FILE and unknown:
        pytest.skip(f"nothing here computes {unknown}; the other names agree")
    assert unknown == []
