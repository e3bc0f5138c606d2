"""The provider without its connections: what it was told to do, what it did, and its log of both."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import unquote

from holdfast_simulator.disguise import disguise
from holdfast_simulator.faults import Fault, Moment, Slow
from holdfast_simulator.http import Answer, Head
from holdfast_simulator.ledger import Effect, Ledger
from holdfast_simulator.log import CallLog, Entry
from holdfast_simulator.routes import Work, effect_answer, perform
from holdfast_simulator.script import Call, Script, decide, standing_fault


class Arrival(NamedTuple):
    """A call that has come in, and the fault that is its lot."""

    head: Head
    key: str | None
    at: datetime
    monotonic: float
    fault: Fault | None


class Provider:
    """One provider: its script, standing faults, effects and log. *clock* gives monotonic seconds."""

    def __init__(self, script: Script, log: CallLog, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.log = log
        self.standing: dict[str | None, Fault] = {}
        self._clock = clock
        self._ledger = _restored(log)
        self.follow(script)

    @property
    def script(self) -> Script:
        """The script in force."""
        return self._script

    def follow(self, script: Script) -> None:
        """Follow a script from its beginning; effects, log and standing faults stay."""
        self._script = script
        self._tallies = script.untouched()

    def forget(self) -> None:
        """Forget calls, effects and standing faults, and begin the script again."""
        self.log.clear()
        self.standing.clear()
        self._ledger = Ledger()
        self.follow(self._script)

    def admit(self, head: Head, body: bytes | None) -> Arrival:
        """Decide the fault of a call that has arrived. A standing one goes before the script."""
        key = head.headers.get("idempotency-key")
        fault = None
        if self.standing or self._script.rules:
            fault = self._choose(Call(head.route, key, body or b""))
        return Arrival(head, key, datetime.now(UTC), self._clock(), fault)

    def perform(self, arrival: Arrival, body: bytes | None) -> Answer | None:
        """Do the work of a call as far as its fault allows, log it, and return what to send.

        When this returns, the effect stands in the log; None means that nothing is to be sent.
        """
        fault = arrival.fault
        work = None
        if fault is None or fault.at is Moment.AFTER_EFFECT or isinstance(fault, Slow):
            work = perform(arrival.head, body or b"", self._ledger, self._script, now=self._clock())
        answer = work.answer if work else None
        if fault is not None:
            answer = disguise(fault, answer, now=arrival.at)
        self._record(arrival, body, work, status=answer.status if answer else None)
        return answer

    def _choose(self, call: Call) -> Fault | None:
        if (fault := standing_fault(self.standing.items(), call)) is not None:
            return fault
        fault, self._tallies = decide(self._script, self._tallies, call)
        return fault

    def _record(self, arrival: Arrival, body: bytes | None, work: Work | None, *, status: int | None) -> None:
        entry = Entry(
            number=self.log.next_number,
            at=arrival.at,
            monotonic=arrival.monotonic,
            route=arrival.head.route,
            key=arrival.key,
            body_hash=sha256(body).hexdigest() if body is not None else None,
            fault=arrival.fault.kind if arrival.fault else None,
            status=status,
            effect_id=work.effect_id if work else None,
            duplicate_of=work.duplicate_of if work else None,
        )
        self.log.append(entry)


def _restored(log: CallLog) -> Ledger:
    # A provider that restarts still knows what it did, or it would do things twice by itself.
    # Bodies are not in the log, so these effects echo null.
    ledger = Ledger()
    for entry in log.entries:
        if entry.effect_id is not None:
            name = unquote(entry.route.removeprefix("POST /effects/"))
            answer = effect_answer(entry.effect_id, name, entry.key, b"null")
            ledger.add(Effect(entry.effect_id, name, entry.key, entry.monotonic, answer))
    return ledger
