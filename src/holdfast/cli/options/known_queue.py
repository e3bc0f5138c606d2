"""Checks the name of a queue, so that a typo is refused with the list of known queues."""

from holdfast.app import Holdfast


async def ensure_known_queue(hold: Holdfast, name: str) -> None:
    """Raise `ConfigError` for a queue without jobs and pause that no declaration and no worker setting names."""
    await hold.queues.ensure_known(name, served=hold.settings.worker_options.queues)
