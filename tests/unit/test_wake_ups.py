"""When idle workers look for jobs that all of them were notified of, in virtual time."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from holdfast.engine.claiming.wake_ups import FORGET_AFTER, LONGEST, SHORTEST, WakeUps
from holdfast.ports import Hint, HintKind
from holdfast.stores.postgres.notify import Sender
from holdfast.testing.seeded_system import SeededRandom
from holdfast.testing.virtual_loop import VirtualLoop


def run(main: Any) -> None:
    loop = VirtualLoop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.close()


def taken(queue: str, by: str) -> Hint:
    return Hint(HintKind.TAKEN, queue, by, 20)


def watched(name: str = "me", *queues: str) -> tuple[WakeUps, list[float]]:
    looks: list[float] = []
    time = asyncio.get_running_loop().time
    wake_ups = WakeUps(
        name, queues or ("mail",), lambda: looks.append(time()), random=SeededRandom(random.Random(1))
    )
    return wake_ups, looks


def test_a_worker_ignores_queues_that_it_does_not_serve() -> None:
    async def main() -> None:
        wake_ups, looks = watched("me", "mail")

        wake_ups.notified("video", load=0.0)

        await asyncio.sleep(1)
        assert looks == []

    run(main())


def test_a_worker_that_knows_of_no_other_looks_at_once_however_busy() -> None:
    async def main() -> None:
        wake_ups, looks = watched()

        wake_ups.notified("mail", load=0.9)
        wake_ups.claimed("mail", jobs=0, room=5, notified=wake_ups.looking("mail"))
        wake_ups.taken(taken("mail", "another"))
        await asyncio.sleep(FORGET_AFTER)
        wake_ups.notified("mail", load=0.9)

        assert looks == [0.0, FORGET_AFTER]

    run(main())


def test_one_of_twenty_idle_workers_looks_and_the_others_need_not() -> None:
    looks: dict[str, int] = {}

    async def main() -> None:
        fleet: dict[str, WakeUps] = {}
        ready = 0

        def worker(name: str) -> Callable[[], None]:
            def look() -> None:
                nonlocal ready
                looks[name] = looks.get(name, 0) + 1
                jobs, ready = ready, 0
                if fleet[name].claimed("mail", jobs=jobs, room=5, notified=fleet[name].looking("mail")):
                    # A claim and its message take three milliseconds.
                    asyncio.get_running_loop().call_later(0.003, notify_taken, name)

            return look

        def notify_taken(name: str) -> None:
            for wake_ups in fleet.values():
                wake_ups.taken(taken("mail", name))

        for number in range(20):
            name = f"w{number}"
            fleet[name] = WakeUps(name, ["mail"], worker(name), random=SeededRandom(random.Random(number)))
        for _ in range(101):
            ready = 1
            for wake_ups in list(fleet.values()):
                wake_ups.notified("mail", load=0.0)
            await asyncio.sleep(0.1)
            assert ready == 0

    run(main())

    # The first notification wakes every worker; from then on the worker that won it looks alone.
    assert sum(looks.values()) == 20 + 100
    assert sorted(looks.values()) == [1] * 19 + [101]


def test_when_the_first_worker_is_busy_another_one_looks_within_a_moment() -> None:
    async def main() -> None:
        wake_ups, looks = watched()
        wake_ups.taken(taken("mail", "another"))

        wake_ups.notified("mail", load=0.0)
        wake_ups.notified("mail", load=0.0)

        await asyncio.sleep(1)
        assert len(looks) == 1
        assert SHORTEST <= looks[0] <= SHORTEST + LONGEST

    run(main())


def test_a_busy_worker_leaves_a_job_to_idle_ones_for_a_moment() -> None:
    async def main() -> None:
        wake_ups, looks = watched()
        wake_ups.taken(taken("mail", "me"))

        wake_ups.notified("mail", load=0.5)

        assert looks == []
        await asyncio.sleep(1)
        assert len(looks) == 1

    run(main())


def test_a_claim_that_may_have_left_jobs_calls_the_others_in() -> None:
    async def main() -> None:
        wake_ups, looks = watched()
        wake_ups.taken(taken("mail", "another"))
        wake_ups.notified("mail", load=0.0)

        assert not wake_ups.claimed("mail", jobs=5, room=5, notified=wake_ups.looking("mail"))
        assert wake_ups.claimed("mail", jobs=1, room=5, notified=wake_ups.looking("mail"))
        # No notification came before this one.
        assert not wake_ups.claimed("mail", jobs=1, room=5, notified=wake_ups.looking("mail"))
        assert not looks

    run(main())


def test_a_notification_that_comes_while_a_claim_is_in_flight_is_not_lost() -> None:
    """Its job may have been stored after the claim has looked."""

    async def main() -> None:
        wake_ups, looks = watched()
        wake_ups.taken(taken("mail", "another"))
        wake_ups.notified("mail", load=0.5)
        notified = wake_ups.looking("mail")
        wake_ups.notified("mail", load=0.5)

        assert not wake_ups.claimed("mail", jobs=1, room=5, notified=notified)

        await asyncio.sleep(1)
        assert len(looks) == 1

    run(main())


def test_after_missed_notifications_and_until_it_is_closed_a_worker_looks() -> None:
    async def main() -> None:
        wake_ups, looks = watched()
        wake_ups.taken(taken("mail", "another"))
        wake_ups.notified("", load=0.0)
        wake_ups.notified("mail", load=0.0)

        wake_ups.close()

        await asyncio.sleep(1)
        assert looks == [0.0]

    run(main())


def test_a_sender_remembers_no_queue_for_which_nothing_is_due() -> None:
    async def main() -> None:
        sent: list[str] = []

        async def send(payloads: list[str]) -> None:
            sent.extend(payloads)

        sender = Sender(send)
        for number in range(1_000):
            assert sender.due([f"tenant-{number}"]) == [f"tenant-{number}"]
        assert sender.due(["tenant-7"]) == []

        await asyncio.sleep(1)
        assert sent == ["ready:tenant-7"]
        assert sender.pending == 0

    run(main())
