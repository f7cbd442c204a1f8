"""Identifiers that look like those of the public data and reveal nothing about the product or its place in the list."""

import hashlib

LETTERS = "0123456789ABCDFGHJKLMNPQRSTVWXYZ"  # 32, without the vowels that would make words of them
ROUNDS = 4
HALF = 20  # bits


def opaque_id(key: str, number: int) -> str:
    """Makes the identifier of a product.

    A Feistel network shuffles the numbers, so two of them never get the same identifier, however many there are.

    Args:
        key: Names the shuffle: the kind of catalogue and its seed.
        number: From 0 to 2**40 - 1.

    Returns:
        "B0" and eight digits or capital letters.

    Raises:
        ValueError: If the number is out of range.
    """
    if not 0 <= number < 1 << 2 * HALF:
        raise ValueError(f"number={number} is not in 0..2**{2 * HALF} - 1; there are no more identifiers")
    left, right = number >> HALF, number & (1 << HALF) - 1
    for turn in range(ROUNDS):
        digest = hashlib.blake2b(f"{key}/{turn}/{right}".encode(), digest_size=4).digest()
        left, right = right, left ^ int.from_bytes(digest, "big") & (1 << HALF) - 1
    shuffled = left << HALF | right
    return "B0" + "".join(LETTERS[shuffled >> 5 * place & 31] for place in range(7, -1, -1))
