"""Splits by index and by product."""

import random

import pytest

from webshop_server.goals.splits import PARTS, split_by_index, split_by_product, split_sizes


@pytest.mark.parametrize(
    ("goals", "sizes"),
    [
        (12_087, (500, 1000, 10_587)),  # the published human goals
        (6910, (500, 1000, 5410)),
        (3000, (500, 1000, 1500)),
        (2999, (499, 999, 1501)),
        (96, (16, 32, 48)),
        (3, (1, 1, 1)),
        (2, (0, 0, 2)),
        (0, (0, 0, 0)),
    ],
)
def test_sizes(goals: int, sizes: tuple[int, int, int]) -> None:
    assert split_sizes(goals) == sizes


def test_by_index_is_as_published() -> None:
    assert split_by_index(2_000_000) == {
        "test": range(500),
        "eval": range(500, 1500),
        "train": range(1500, 2_000_000),
    }


def test_by_product_by_hand() -> None:
    # 12 goals: room for 2, 4 and 6. Product 7 (3 goals) fits into eval, 5 (6 goals) into train, 9 (2) into test and
    # 4 (1) into what is left of eval.
    split = split_by_product([7, 7, 7, 5, 9, 9, 5, 4, 5, 5, 5, 5])
    assert {part: list(numbers) for part, numbers in split.items()} == {
        "test": [4, 5],
        "eval": [0, 1, 2, 7],
        "train": [3, 6, 8, 9, 10, 11],
    }


def test_no_product_is_in_two_parts() -> None:
    rng = random.Random(0)
    products = [int(rng.paretovariate(0.7)) for _ in range(5000)]
    split = split_by_product(products)
    assert sorted(number for part in PARTS for number in split[part]) == list(range(5000))
    seen = [{products[number] for number in split[part]} for part in PARTS]
    assert not (seen[0] & seen[1] or seen[0] & seen[2] or seen[1] & seen[2])
    assert [len(split[part]) for part in PARTS] == [500, 1000, 3500]


def test_one_product_goes_to_training() -> None:
    assert {part: len(numbers) for part, numbers in split_by_product([3] * 9).items()} == {
        "test": 0,
        "eval": 0,
        "train": 9,
    }
