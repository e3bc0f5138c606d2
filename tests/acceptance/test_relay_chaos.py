"""Messages are relayed to a real RabbitMQ while relays are killed and the broker is: one run, and the claims about it.

Each test is one claim, judged by what is in a queue of the broker, and by what the jobs of a consumer have written.
`make relay-chaos` is the long run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.acceptance.harness.databases import open_database
from tests.acceptance.harness.relay_chaos import Evidence, Plan, relay_harness

if TYPE_CHECKING:
    from tests.brokers import PrivateRabbitMQ
    from tests.servers import PrivatePostgres

PLAN = Plan(messages=500, aggregates=50, kills=2, restarts=1, worker_kills=0)


@pytest.fixture(scope="module")
def seen(
    stoppable_server: PrivatePostgres,
    _private_rabbitmq: PrivateRabbitMQ,
    tmp_path_factory: pytest.TempPathFactory,
) -> Evidence:
    """Relay everything once, with faults."""
    folder = tmp_path_factory.mktemp("relay-chaos")
    _private_rabbitmq.start()
    with (
        open_database("postgres", folder, server=stoppable_server) as database,
        relay_harness(PLAN, database, _private_rabbitmq, folder) as harness,
    ):
        evidence = harness.run()
        assert harness.relays.unexpected_deaths() + harness.workers.unexpected_deaths() == []
    return evidence


@pytest.mark.clause("OUT-4")
def test_every_message_arrives(seen: Evidence) -> None:
    assert seen.missing == 0
    assert (seen.stats.pending, seen.stats.failed) == (0, 0)


@pytest.mark.clause("OUT-3")
def test_the_first_arrivals_of_each_aggregate_are_in_order(seen: Evidence) -> None:
    assert len(seen.first_arrivals) == PLAN.aggregates
    assert seen.disordered == []


@pytest.mark.clause("OUT-5", "postgres")
@pytest.mark.clause("IDM-4", "postgres")
def test_every_message_takes_effect_once(seen: Evidence) -> None:
    assert seen.effects.jobs == PLAN.messages
    assert (seen.lost_effects, seen.repeated_effects) == (0, 0)
    assert seen.effects.received == PLAN.messages


def test_relays_were_killed_and_the_broker_was(seen: Evidence) -> None:
    assert (seen.kills, list(seen.restarts)) == (2, ["killed"])
    assert seen.resets >= 1
