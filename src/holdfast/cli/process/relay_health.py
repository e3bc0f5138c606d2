"""The health of a relay that runs without a worker."""

from typing import TYPE_CHECKING

from holdfast.cli.process.runner_health import RunnerHealth

if TYPE_CHECKING:
    from holdfast.telemetry.prometheus import Gauges


class RelayHealth(RunnerHealth):
    """The health of one relay: it is ready once it has leased partitions of the outbox, or could have."""

    waits_for = "read the outbox"

    async def _gauges(self) -> "Gauges":
        return await self._outbox_gauges()
