"""Finds the SDK clients that an application created when it was imported, and their numbers of retries.

Nothing is imported for this: a library that the application does not use has no clients. Some attributes are
private; where one is missing, the client counts as one that does not retry.
"""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import NamedTuple

from holdfast.cli.doctor.checks import Client


class ClientLibrary(NamedTuple):
    """How to recognise the clients of a library and read their retries, and the argument that turns them off."""

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
    known = {base: library for library in LIBRARIES if (base := _loaded(library)) is not None}
    if not known:
        return
    locations = _variables()
    for thing in gc.get_objects():
        # Not isinstance: it reads __class__, and some lazy proxies create their object then.
        base = next((base for base in known if issubclass(type(thing), base)), None)
        if base is not None and not _belongs_to_another(type(thing), known[base]):
            library, kind = known[base], type(thing)
            name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
            yield Client(name, library.retries(thing), library.instead, locations.get(id(thing)))


def _loaded(library: ClientLibrary) -> type | None:
    base = getattr(sys.modules.get(library.module), library.base, None)
    return base if isinstance(base, type) else None


def _belongs_to_another(kind: type, library: ClientLibrary) -> bool:
    """Whether a client belongs to another library, which configures its retries."""
    package = kind.__module__.partition(".")[0]
    return package != library.package and package in {other.package for other in LIBRARIES}


def _variables() -> dict[int, str]:
    """Return the names of all module variables by the identity of their value."""
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
    defaults = 5 if retries.get("mode", "legacy") == "legacy" else 3
    return _count(retries.get("total_max_attempts", defaults)) - 1


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


LIBRARIES = (
    ClientLibrary("openai._base_client", "BaseClient", _of_sdk, "max_retries=0"),
    ClientLibrary("anthropic._base_client", "BaseClient", _of_sdk, "max_retries=0"),
    ClientLibrary(
        "botocore.client", "BaseClient", _of_botocore, "config=Config(retries={'total_max_attempts': 1})"
    ),
    ClientLibrary("httpx._client", "BaseClient", _of_httpx, "a transport with retries=0"),
    ClientLibrary("httpx2._client", "BaseClient", _of_httpx, "a transport with retries=0"),
    ClientLibrary("requests.sessions", "Session", _of_requests, "HTTPAdapter(max_retries=0)"),
)
