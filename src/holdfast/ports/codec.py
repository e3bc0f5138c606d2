"""The codec: encodes arguments and results at rest, for applications that may not store them in plain text."""

from typing import Protocol


class Codec(Protocol):
    """Turns the JSON text of arguments, results and signals into what is stored, and back.

    It is called on the event loop, for every text that is written or read, from any thread.
    """

    def encode(self, text: str) -> str:
        """Return *text* as it is stored: any text without NUL characters."""
        ...

    def decode(self, text: str) -> str:
        """Return what `encode` was given. Any exception means that *text* cannot be decoded here."""
        ...

    def fingerprint(self, digest: str) -> str:
        """Return the digest of a text as it is stored, for comparing arguments: the same for the same *digest*.

        A plain digest lets a reader of the database test guesses; one that is made with a key does not.
        If the result for a *digest* changes, stored keys count as reused, and stored stages as changed.
        """
        ...
