"""The request to stop a worker."""

import asyncio


class StopRequest:
    """Whether the worker is to stop, and whether at once."""

    def __init__(self) -> None:
        self.made = False
        """Whether the worker is to stop: it claims and starts nothing any more."""
        self.at_once = asyncio.Event()
        """Set to end the grace time of running attempts."""

    def make(self) -> None:
        """Request it."""
        self.made = True
