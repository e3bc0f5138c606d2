"""What keeps jobs from being claimed: a provider, or the lack of a worker that knows their name."""

from dataclasses import dataclass

_SEPARATOR = "\n"
"""Separates the parts of a holder as it is stored; no name and no key contains it."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of jobs: they are not claimed until they are released in its name.

    With only a *provider*, they wait for its breaker; with a *key*, for its limit of that key, '' if they have none; with
    *for_retries*, for its retry budget. Without a provider, they wait for a worker that knows *job* and serves *queue*,
    which is `None` if an earlier version did not store it.
    """

    provider: str | None = None
    key: str | None = None
    for_retries: bool = False
    job: str = ""
    queue: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Holder":
        """Read a holder as it is stored.

        >>> Holder.parse("llm").provider, Holder.parse("\\nsend\\nmail").queue
        ('llm', 'mail')
        """
        provider, separator, rest = text.partition(_SEPARATOR)
        if not provider:
            job, separator, queue = rest.partition(_SEPARATOR)
            return cls(job=job, queue=queue if separator else None)
        if rest == _SEPARATOR:
            return cls(provider, for_retries=True)
        return cls(provider, rest if separator else None)

    @property
    def text(self) -> str:
        """The holder as it is stored.

        >>> [Holder(provider="llm").text, Holder("llm", key="ann").text, Holder(job="send", queue="mail").text]
        ['llm', 'llm\\nann', '\\nsend\\nmail']
        """
        if self.provider is None:
            return _SEPARATOR.join(["", self.job] if self.queue is None else ["", self.job, self.queue])
        if self.for_retries:
            return self.provider + 2 * _SEPARATOR
        return self.provider if self.key is None else f"{self.provider}{_SEPARATOR}{self.key}"

    @property
    def label(self) -> str:
        """The holder as it is displayed.

        >>> [Holder("llm").label, Holder("llm", key="").label, Holder("llm", key="ann").label]
        ['llm', 'llm (limit)', 'llm (limit of ann)']
        >>> Holder("llm", for_retries=True).label, Holder(job="send", queue="mail").label
        ('llm (retry budget)', "no worker knows 'send'")
        """
        if self.provider is None:
            return f"no worker knows {self.job!r}"
        if self.for_retries:
            return f"{self.provider} (retry budget)"
        if self.key is None:
            return self.provider
        return f"{self.provider} (limit of {self.key})" if self.key else f"{self.provider} (limit)"
