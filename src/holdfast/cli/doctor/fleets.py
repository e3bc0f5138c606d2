"""The checks of `holdfast doctor` on the brokers and the workers of fleets."""

from typing import Any

from holdfast.app import Holdfast
from holdfast.cli.doctor.checks import Check, Health
from holdfast.core.errors import BrokerError, ConfigError
from holdfast.ports.fleets import CheckedSender, Transport


async def check_fleets(hold: Holdfast) -> list[Check]:
    """Check that the broker of each fleet can be reached, and the settings of its workers, as far as they are known."""
    found: list[Check] = []
    for queue, transport in hold.runtime.registry.transports.items():
        found.append(await _check_broker(queue, transport))
        if transport.kind == "celery":
            found += _check_celery(queue, transport)
    return found


async def _check_broker(queue: str, transport: Transport) -> Check:
    name = f"fleet {queue}"
    try:
        sender = transport.open()
        try:
            found = f"{transport.kind} on {await sender.check()}"
            warnings = await sender.warnings() if isinstance(sender, CheckedSender) else ()
            return Check(name, Health.WARN if warnings else Health.OK, "; ".join([found, *warnings]))
        finally:
            await sender.close()
    except (BrokerError, ConfigError) as error:
        return Check(name, Health.FAIL, str(error))


def _check_celery(queue: str, transport: Any) -> list[Check]:
    from holdfast.celery.recommended_settings import check_settings  # noqa: PLC0415 - needs the extra

    if not transport.knows_app:
        return []  # the workers have settings of their own, which an address does not tell
    problems = check_settings(transport.app)
    if not problems:
        return [Check(f"fleet {queue} settings", Health.OK, "as recommended")]
    return [
        Check(
            f"fleet {queue} {problem.setting}",
            Health.FAIL if problem.fatal else Health.WARN,
            problem.advice,
        )
        for problem in problems
    ]
