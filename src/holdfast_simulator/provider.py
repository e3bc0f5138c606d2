"""The provider without its connections: its script, its effects, and its log."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import unquote

from holdfast_simulator.faults import Fault, Moment, Slow
from holdfast_simulator.faulty_answer import faulty_answer
from holdfast_simulator.http import Answer, Head
from holdfast_simulator.ledger import Effect, Ledger
from holdfast_simulator.log import CallLog, Entry
from holdfast_simulator.routes import Work, effect_answer, perform
from holdfast_simulator.script import Call, Script, decide, standing_fault


class ReceivedCall(NamedTuple):
    """A call that the provider has received, and the fault that was chosen for it."""

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
        self._ledger = _restore_ledger(log)
        self.set_script(script)

    @property
    def script(self) -> Script:
        """The current script."""
        return self._script

    def set_script(self, script: Script) -> None:
        """Replace the script, with all counts of its rules at zero; effects, log and standing faults stay."""
        self._script = script
        self._tallies = script.untouched()

    def reset(self) -> None:
        """Delete calls, effects and standing faults, and start the script again."""
        self.log.clear()
        self.standing.clear()
        self._ledger = Ledger()
        self.set_script(self._script)

    def receive(self, head: Head, body: bytes | None) -> ReceivedCall:
        """Choose the fault of a call. A standing fault has precedence over the script."""
        key = head.headers.get("idempotency-key")
        fault = None
        if self.standing or self._script.rules:
            fault = self._choose_fault(Call(head.route, key, body or b""))
        return ReceivedCall(head, key, datetime.now(UTC), self._clock(), fault)

    def perform(self, call: ReceivedCall, body: bytes | None) -> Answer | None:
        """Do the work of a call as far as its fault allows, log it, and return the answer to send.

        When this returns, the effect is in the log; None means that no answer is sent.
        """
        fault = call.fault
        work = None
        if fault is None or fault.at is Moment.AFTER_EFFECT or isinstance(fault, Slow):
            work = perform(call.head, body or b"", self._ledger, self._script, now=self._clock())
        answer = work.answer if work else None
        if fault is not None:
            answer = faulty_answer(fault, answer, now=call.at)
        self._append_entry(call, body, work, status=answer.status if answer else None)
        return answer

    def _choose_fault(self, call: Call) -> Fault | None:
        if (fault := standing_fault(self.standing.items(), call)) is not None:
            return fault
        fault, self._tallies = decide(self._script, self._tallies, call)
        return fault

    def _append_entry(
        self, call: ReceivedCall, body: bytes | None, work: Work | None, *, status: int | None
    ) -> None:
        entry = Entry(
            number=self.log.next_number,
            at=call.at,
            monotonic=call.monotonic,
            route=call.head.route,
            key=call.key,
            body_hash=sha256(body).hexdigest() if body is not None else None,
            fault=call.fault.kind if call.fault else None,
            status=status,
            effect_id=work.effect_id if work else None,
            duplicate_of=work.duplicate_of if work else None,
        )
        self.log.append(entry)


def _restore_ledger(log: CallLog) -> Ledger:
    # A restarted provider keeps its effects: otherwise the restart itself would cause duplicates.
    # Bodies are not in the log, so these effects echo null.
    ledger = Ledger()
    for entry in log.entries:
        if entry.effect_id is not None:
            name = unquote(entry.route.removeprefix("POST /effects/"))
            answer = effect_answer(entry.effect_id, name, entry.key, b"null")
            ledger.add(Effect(entry.effect_id, name, entry.key, entry.monotonic, answer))
    return ledger
