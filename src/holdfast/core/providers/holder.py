"""Holders: what a held job waits for, as one text: a breaker, a limit, a retry budget, or a worker that knows its name."""

SEPARATOR = "\n"
"""Separates a provider's name from a key in the name of a holder; no name contains it."""

MAX_KEY_LENGTH = 200


def held_for_limit(name: str, key: str) -> str:
    """Name the holder of jobs that wait for a limit; jobs that wait for the breaker are held by the provider's name."""
    return f"{name}{SEPARATOR}{key}"


def checked_key(key: object) -> str:
    """Return a key as text. Raises `ValueError` for one that cannot be stored and displayed."""
    if key is None:
        raise ValueError("Not a key: None. Pass a text; '' is the key of calls without a customer")
    key = str(key)
    if len(key) > MAX_KEY_LENGTH or not key.isprintable():
        raise ValueError(
            f"Not a key: {key[:20]!r}. Use printable text of at most {MAX_KEY_LENGTH} characters"
        )
    return key


def held_for_retries(name: str) -> str:
    """Name the holder of jobs whose next call would exceed the retry budget."""
    return f"{name}{SEPARATOR}{SEPARATOR}"


def held_for_name(job: str, queue: str) -> str:
    """Name the holder of jobs that wait for a worker which knows their name and serves their queue.

    It begins with the separator: no provider has an empty name.
    """
    return f"{SEPARATOR}{job}{SEPARATOR}{queue}"


def awaited_name(holder: str) -> str | None:
    """Return the name of the jobs that wait for a worker which knows it; `None` if a provider holds them.

    >>> awaited_name(held_for_name("send", "mail")), awaited_name("llm"), awaited_name(held_for_limit("llm", "ann"))
    ('send', None, None)
    """
    provider, _, awaited = holder.partition(SEPARATOR)
    return None if provider else awaited.partition(SEPARATOR)[0]


def awaited_queue(holder: str) -> str | None:
    """Return the queue of the jobs that wait for a worker which knows their name.

    `None` if a provider holds them, or if an earlier version did not store the queue.

    >>> awaited_queue(held_for_name("send", "mail")), awaited_queue("\\nsend"), awaited_queue("llm")
    ('mail', None, None)
    """
    provider, _, awaited = holder.partition(SEPARATOR)
    return None if provider else awaited.partition(SEPARATOR)[2] or None


def provider_of(holder: str) -> str:
    """Name the provider that holds a job; it is empty if the job waits for a worker that knows its name.

    >>> provider_of(held_for_limit("llm", "customer-7")), provider_of("llm"), provider_of(held_for_name("send", "mail"))
    ('llm', 'llm', '')
    """
    return holder.partition(SEPARATOR)[0]


def limited_key(holder: str) -> str | None:
    """Return the key for whose limit a job is held; `None` if it is held for something else.

    >>> limited_key("llm"), limited_key(held_for_limit("llm", "")), limited_key(held_for_limit("llm", "ann"))
    (None, '', 'ann')
    """
    _, separator, key = holder.partition(SEPARATOR)
    return key if separator and key != SEPARATOR else None


def holder_label(holder: str) -> str:
    """Describe a holder for display.

    >>> holder_label("llm"), holder_label(held_for_limit("llm", "")), holder_label(held_for_limit("llm", "customer-7"))
    ('llm', 'llm (limit)', 'llm (limit of customer-7)')
    >>> holder_label(held_for_name("send", "mail"))
    "no worker knows 'send'"
    """
    unknown = awaited_name(holder)
    if unknown is not None:
        return f"no worker knows {unknown!r}"
    name, separator, key = holder.partition(SEPARATOR)
    if not separator:
        return name
    if key == SEPARATOR:
        return f"{name} (retry budget)"
    return f"{name} (limit of {key})" if key else f"{name} (limit)"
