"""Adapts SQLAlchemy's connections, of any driver, for `within=`."""

from collections.abc import Callable
from typing import Any, TypeVar

from holdfast.core.within import Kind

T = TypeVar("T")

KINDS = (
    Kind.SQLALCHEMY_SESSION,
    Kind.SQLALCHEMY_CONNECTION,
    Kind.SQLALCHEMY_ASYNC_SESSION,
    Kind.SQLALCHEMY_ASYNC_CONNECTION,
)


async def with_connection(kind: Kind, given: Any, work: Callable[[Any], T]) -> T:
    """Call *work* with the plain connection behind what was *given*, in the transaction that it is in.

    *work* blocks; for an async driver SQLAlchemy does the waiting. A session or connection without a
    transaction begins one, as with its first statement.
    """
    owner = given() if callable(given) else given  # a scoped session returns the real one when called
    match kind:
        case Kind.SQLALCHEMY_SESSION:
            return work(owner.connection())
        case Kind.SQLALCHEMY_ASYNC_SESSION:
            return await owner.run_sync(lambda session: work(session.connection()))  # type: ignore[no-any-return]  # what work gives
        case Kind.SQLALCHEMY_ASYNC_CONNECTION:
            return await owner.run_sync(work)  # type: ignore[no-any-return]  # what work gives
        case _:
            return work(owner)
