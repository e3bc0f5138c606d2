"""Checks the name of a queue, so that a typo is refused with the list of known queues."""

from holdfast.core.errors import ConfigError
from holdfast.face import Holdfast


async def ensure_known_queue(hold: Holdfast, name: str) -> None:
    """Raise `ConfigError` for a queue without jobs and pause that no declaration and no worker setting names.

    With a bare store only jobs and pauses are known. Ended jobs are counted last: there may be many.
    """
    store = hold.runtime.store
    known = {"default", *hold.settings.worker_options.queues, *(spec.queue for spec in hold.runtime.registry)}
    known |= {depth.queue for depth in await store.queues.depths()}
    known |= {pause.queue for pause in await store.queues.paused()}
    if name not in known:
        known |= {queue for queue, _ in await store.queues.counts()}
    if name not in known:
        raise ConfigError(f"there is no queue {name!r}; known queues: {', '.join(sorted(known))}")
