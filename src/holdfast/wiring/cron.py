"""Cron expressions, parsed by a library that follows crontab(5), including daylight saving time."""

from collections.abc import Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from holdfast.core.errors import ConfigError
from holdfast.core.jobs.schedules import Ticks


def cron(expression: str, zone: str) -> Ticks:
    """Return the ticks of *expression* in the time zone *zone*. Raises `ConfigError` if either is invalid."""
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - an extra, loaded when it is used
    except ModuleNotFoundError as error:
        raise ConfigError(
            "cron schedules need cronsim; install it with: pip install 'holdfast[cron]'"
        ) from error
    try:
        zone_info = ZoneInfo(zone)
        CronSim(expression, datetime.now(zone_info))
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: it names a folder of zones
        raise ConfigError(f"{zone!r} is no time zone; write for example Europe/Berlin") from error
    except CronSimError as error:
        raise ConfigError(f"{expression!r} is no cron expression: {error}") from error

    def ticks(after: datetime) -> Iterator[datetime]:
        for tick in CronSim(expression, after.astimezone(zone_info)):
            yield tick.astimezone(UTC)

    return ticks
