"""Seeded randomness: one stream per purpose, so that a new draw in one place of the simulator
does not shift what happens in all the others.
"""

import random


class Chance:
    """Hands out the random streams of one seed.

    `random.Random(str)` seeds by SHA-512 of the text, so the streams do not depend on
    PYTHONHASHSEED.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def stream(self, purpose: str) -> random.Random:
        """Return the stream of that purpose, at its beginning."""
        return random.Random(f"{self.seed}/{purpose}")
