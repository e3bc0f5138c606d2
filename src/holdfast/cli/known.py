"""Whether a queue that a command was given exists: a typo is refused with the names that there are."""

from holdfast.core.errors import ConfigError
from holdfast.face import Holdfast


async def ensure_known_queue(hold: Holdfast, name: str) -> None:
    """Refuse the name of a queue that no declared job and no worker setting names, that has no job and is not paused.

    Of a bare store only jobs and pauses are known. Ended jobs are counted last: there may be many.
    """
    store = hold.parts.store
    known = {"default", *hold.settings.worker_options.queues, *(spec.queue for spec in hold.parts.registry)}
    known |= {depth.queue for depth in await store.depths()}
    known |= {pause.queue for pause in await store.paused_queues()}
    if name not in known:
        known |= {queue for queue, _ in await store.counts()}
    if name not in known:
        raise ConfigError(f"there is no queue {name!r}; known are: {', '.join(sorted(known))}")
