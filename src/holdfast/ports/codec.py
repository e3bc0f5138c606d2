"""The codec: how arguments and results look at rest, for those who may not keep them in plain text."""

from typing import Protocol


class Codec(Protocol):
    """Turns the JSON text of arguments, results and signals into what is stored, and back.

    It is called on the event loop, for every text that is written or read, from any thread.
    """

    def encode(self, text: str) -> str:
        """Give what is stored of *text*: any text without NUL characters."""
        ...

    def decode(self, text: str) -> str:
        """Give back what `encode` was given. Whatever is raised means that *text* cannot be read here."""
        ...

    def fingerprint(self, digest: str) -> str:
        """Give the digest of a text as it is stored, to compare arguments by: the same for the same *digest*.

        A plain digest lets a reader of the database try out guesses; one that is made with a key does not.
        Other results for texts of before mean that their keys seem reused, and their stages changed.
        """
        ...
