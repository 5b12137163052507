"""The block cipher behind JAX's default generator, in NumPy: the same words, bit by bit.

Threefry-2x32 (Salmon, Moraes, Dror and Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3"): 20 rounds
on two words of 32 bits. A key is two words; its bits, its splits and ``fold_in`` encipher counters.
"""

from typing import Any

import numpy as np

ROTATIONS = (13, 15, 26, 6), (17, 29, 16, 24)
PARITY = np.uint32(0x1BD11BDA)


def enciphered(key: tuple[Any, Any], first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two words enciphered with two words of a key, all arrays of 32 bits that broadcast.

    Args:
        key: its words.
        first: the first word.
        second: the second.
    """
    schedule = (key[0], key[1], key[0] ^ key[1] ^ PARITY)
    with np.errstate(over="ignore"):  # sums wrap
        first, second = first + schedule[0], second + schedule[1]
        for block in range(5):
            for rotation in ROTATIONS[block % 2]:
                first = first + second
                second = first ^ (second << np.uint32(rotation) | second >> np.uint32(32 - rotation))
            first = first + schedule[(block + 1) % 3]
            second = second + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return first, second
