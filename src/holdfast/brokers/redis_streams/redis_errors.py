"""What the errors of Redis mean to a relay or a consumer."""

from urllib.parse import urlsplit

from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from holdfast.core.errors import BrokerError, BrokerUnavailable, MessageRefused, RouteRefused

TEMPORARY = ("OOM", "READONLY", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "NOREPLICAS")
"""The first words of answers that end when the server recovers. The client removes some of them from the text."""


def meaning(error: Exception, *, address: str, stream: str) -> BrokerError:
    """Return what an error of a command on *stream* means."""
    text = str(error) or type(error).__name__
    match error:
        case AuthenticationError():
            return BrokerUnavailable(f"Redis at {address} refused the user or the password")
        case NoPermissionError():
            return RouteRefused(f"Redis at {address} does not permit the stream {stream!r}: {text}")
        case ResponseError() if text.startswith("WRONGTYPE"):
            return RouteRefused(f"the key {stream!r} of Redis at {address} is not a stream")
        case ResponseError() if text.startswith("NOGROUP"):
            return RouteRefused(f"the stream {stream!r} of Redis at {address} was deleted")
        case ResponseError() if type(error) is ResponseError and not text.startswith(TEMPORARY):
            return MessageRefused(f"Redis at {address} refused the message: {text}")
        case _:
            return BrokerUnavailable(f"Redis at {address} cannot take or send messages: {text}")


def censored(url: str) -> str:
    """Return an address for messages: without user, password and options.

    >>> censored("redis://:secret@redis.example:6379/0?maxlen=1000")
    'redis.example:6379/0'
    """
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
