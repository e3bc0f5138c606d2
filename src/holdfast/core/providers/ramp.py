"""The ramp: the growing steps in which held jobs are released when a breaker has closed."""

from typing import NamedTuple

FIRST_RELEASE = 3
"""How many held jobs are released when a breaker closes; each step after that releases twice as many."""

RELEASE_EVERY = 2.0
"""Seconds from one step to the next."""

LARGEST_RELEASE = 100_000
"""The largest step, for a release that goes on because more jobs are held meanwhile."""


class Ramp(NamedTuple):
    """How many held jobs are released next, and when."""

    at: float
    size: int
