"""The application of the runs about dead letters: an invoice is drafted, and then sent.

Each stage has one effect in an outside service, under the key that Holdfast gives it. Workers load it as
`tests.acceptance.harness.invoices_app:hold`.
"""

from dataclasses import dataclass

import httpx

from holdfast import Backoff, Holdfast, JobFunction, current

BUDGET = 6
"""Attempts per stage: enough for jobs whose workers are killed one after the other."""


@dataclass(frozen=True)
class Invoices:
    """The application object and its job."""

    hold: Holdfast
    invoice: JobFunction[[int], list[str]]


def build(url: str, service_url: str = "http://127.0.0.1:9") -> Invoices:
    """Declare the job on the database at *url*; its effects go to the service."""
    hold = Holdfast(url, attempts=BUDGET, backoff=Backoff.full_jitter(initial="20ms", ceiling="100ms"))
    service = httpx.AsyncClient(base_url=service_url, timeout=httpx.Timeout(10, pool=None), trust_env=False)

    async def effect(name: str, number: int) -> str:
        key = {"Idempotency-Key": current().key}
        answer = await service.post(f"/effects/{name}", json={"number": number}, headers=key)
        answer.raise_for_status()
        return str(answer.json()["id"])

    @hold.stage("draft")
    async def draft(number: int) -> str:
        return await effect("draft", number)

    @hold.stage("send")
    async def send(number: int) -> str:
        return await effect("send", number)

    @hold.job("invoice")
    async def invoice(number: int) -> list[str]:
        return [await draft(number), await send(number)]

    return Invoices(hold, invoice)
