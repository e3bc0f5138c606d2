"""The clients of services that an application made when it was imported, and how often they call again by themselves.

Nothing is imported for this: a library that the application does not use has no clients. What is read of theirs is
not always public; where it is not there, a client counts as one that does not retry.
"""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import NamedTuple

from holdfast.cli.checks import Client


class Make(NamedTuple):
    """How the clients of one library are recognised: where their base is, how to read it, what to write instead."""

    module: str
    base: str
    retries: Callable[[object], int]
    instead: str

    @property
    def package(self) -> str:
        """The library, as it is imported."""
        return self.module.partition(".")[0]


def found() -> Iterator[Client]:
    """Find the clients that exist in this process."""
    known = {base: make for make in MAKES if (base := _loaded(make)) is not None}
    if not known:
        return
    places = _variables()
    for thing in gc.get_objects():
        # Not isinstance: that asks a proxy for its class, and some make up what they stand for only then.
        base = next((base for base in known if issubclass(type(thing), base)), None)
        if base is not None and not _belongs_to_another(type(thing), known[base]):
            make = known[base]
            yield Client(_name(type(thing)), make.retries(thing), make.instead, places.get(id(thing)))


def _loaded(make: Make) -> type | None:
    base = getattr(sys.modules.get(make.module), make.base, None)
    return base if isinstance(base, type) else None


def _belongs_to_another(kind: type, make: Make) -> bool:
    """Whether a client is the inner part of another library's, which decides about its retries."""
    package = kind.__module__.partition(".")[0]
    return package != make.package and package in {other.package for other in MAKES}


def _name(kind: type) -> str:
    return f"{kind.__module__.partition('.')[0]}.{kind.__name__}"


def _variables() -> dict[int, str]:
    """Give the names of all that modules hold, by its identity."""
    modules = [module for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    return {
        id(value): f"{module.__name__}.{name}"
        for module in modules
        for name, value in list(vars(module).items())
    }


def _of_sdk(client: object) -> int:
    return _count(_read(client, "max_retries"))


def _of_botocore(client: object) -> int:
    retries = _read(client, "meta.config.retries")
    if not isinstance(retries, Mapping):
        return 0
    usual = 5 if retries.get("mode", "legacy") == "legacy" else 3
    return _count(retries.get("total_max_attempts", usual)) - 1


def _of_httpx(client: object) -> int:
    mounts = _read(client, "_mounts")
    transports = [_read(client, "_transport"), *(mounts.values() if isinstance(mounts, Mapping) else ())]
    return max(_count(_read(transport, "_pool._retries")) for transport in transports)


def _of_requests(session: object) -> int:
    adapters = _read(session, "adapters")
    every = adapters.values() if isinstance(adapters, Mapping) else ()
    return max((_count(_read(adapter, "max_retries.total")) for adapter in every), default=0)


def _read(thing: object, path: str) -> object:
    for name in path.split("."):
        thing = getattr(thing, name, None)
    return thing


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


MAKES = (
    Make("openai._base_client", "BaseClient", _of_sdk, "max_retries=0"),
    Make("anthropic._base_client", "BaseClient", _of_sdk, "max_retries=0"),
    Make("botocore.client", "BaseClient", _of_botocore, "config=Config(retries={'total_max_attempts': 1})"),
    Make("httpx._client", "BaseClient", _of_httpx, "a transport with retries=0"),
    Make("httpx2._client", "BaseClient", _of_httpx, "a transport with retries=0"),
    Make("requests.sessions", "Session", _of_requests, "HTTPAdapter(max_retries=0)"),
)
