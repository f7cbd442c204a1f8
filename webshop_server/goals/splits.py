"""Which goals are for training and which for testing, in two ways.

By index: the published split, 0-499, 500-1499 and the rest. The original shuffles goals and a product has up to
hundreds of them, so most products of its test goals were seen in training too. By product: every product's goals are
in one split. A set that is too small for the published sizes is split in the same proportions: see `split_sizes`.
"""

from array import array
from collections.abc import Sequence

PUBLISHED_TEST, PUBLISHED_EVAL = 500, 1000
TEST_PART, EVAL_PART = 6, 3  # at most a sixth is for testing and a third for evaluation
PARTS = ("test", "eval", "train")
BY_PRODUCT = "_by_product"
SPLITS = ("all", *PARTS, *(part + BY_PRODUCT for part in PARTS))


def split_sizes(goals: int) -> tuple[int, int, int]:
    """How many goals go to test, eval and train.

    From 3000 goals on these are the published 500, 1000 and the rest. Fewer are cut at a sixth and a half, rounded
    down, with at least one goal in each part from 3 goals on.

    Args:
        goals: Number of all goals.

    Returns:
        Three numbers with that sum.

    >>> split_sizes(6910), split_sizes(600), split_sizes(13), split_sizes(2)
    ((500, 1000, 5410), (100, 200, 300), (2, 4, 7), (0, 0, 2))
    """
    least = 1 if goals >= len(PARTS) else 0
    test = max(least, min(PUBLISHED_TEST, goals // TEST_PART))
    evaluation = max(least, min(PUBLISHED_EVAL, goals // EVAL_PART))
    return test, evaluation, goals - test - evaluation


def split_by_index(goals: int) -> dict[str, Sequence[int]]:
    """The published split: consecutive numbers.

    Args:
        goals: Number of all goals.

    Returns:
        Goal numbers, ascending, for "test", "eval" and "train".
    """
    test, evaluation, _ = split_sizes(goals)
    return {"test": range(test), "eval": range(test, test + evaluation), "train": range(test + evaluation, goals)}


def split_by_product(products: Sequence[int]) -> dict[str, Sequence[int]]:
    """Splits so that no product is in two parts.

    Products come in the order of their first goal. One goes to the first part that still has room for all its goals,
    so that a product with hundreds of them cannot fill the test set; train takes what fits nowhere else.

    Args:
        products: For each goal, the number of its product.

    Returns:
        Goal numbers, ascending, for "test", "eval" and "train"; about as many as by index.

    >>> {name: list(numbers) for name, numbers in split_by_product([7, 7, 7, 5, 9, 9, 5, 4, 5, 5, 5, 5]).items()}
    {'test': [4, 5], 'eval': [0, 1, 2, 7], 'train': [3, 6, 8, 9, 10, 11]}
    """
    counts: dict[int, int] = {}
    for product in products:
        counts[product] = counts.get(product, 0) + 1
    room = dict(zip(PARTS, split_sizes(len(products)), strict=True))
    part_of: dict[int, str] = {}
    for product, count in counts.items():  # in the order of first appearance
        part = next((part for part in PARTS if room[part] >= count), "train")
        room[part] -= count
        part_of[product] = part
    numbers = {part: array("i") for part in PARTS}
    for number, product in enumerate(products):
        numbers[part_of[product]].append(number)
    return {part: numbers[part] for part in PARTS}
