"""When a provider link exchanges its reports and limits with the store."""

import asyncio

from holdfast.engine.providers.exchanger import Exchanger


class Exchanges:
    """Exchanges that take until they are answered."""

    def __init__(self) -> None:
        self.begun = 0
        self.answer = asyncio.Event()
        self.interrupted = 0
        self.exchanger = Exchanger(
            self._exchange, name="exchange", interrupted=self._note_interruption, failed=lambda _: None
        )

    async def _exchange(self) -> None:
        self.begun += 1
        await self.answer.wait()

    def _note_interruption(self) -> None:
        self.interrupted += 1
        self.exchanger.schedule(0.0)


async def settle() -> None:
    """Let the loop run all that is due."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_due_during_an_exchange_is_covered_by_the_next() -> None:
    exchanges = Exchanges()
    exchanges.exchanger.exchange_now()
    await settle()
    exchanges.exchanger.exchange_now()
    await settle()
    assert exchanges.begun == 1

    exchanges.answer.set()
    await settle()

    assert exchanges.begun == 2


async def test_no_exchange_follows_after_the_exchanger_was_closed() -> None:
    exchanges = Exchanges()
    exchanges.exchanger.exchange_now()
    await settle()
    exchanges.exchanger.exchange_now()
    await settle()

    exchanges.exchanger.close()
    await settle()
    exchanges.exchanger.exchange_now()
    await settle()

    assert (exchanges.begun, exchanges.interrupted) == (1, 1)
    assert not exchanges.exchanger.is_scheduled
