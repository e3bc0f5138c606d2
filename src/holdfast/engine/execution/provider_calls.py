"""The calls to providers that one attempt makes: their permits, and what follows from their failures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.core.failures.escalation import Escalation, EscalationTable
from holdfast.core.failures.failure import Failure
from holdfast.core.jobs.transitions import hold
from holdfast.core.providers.call_reports import CallOutcome
from holdfast.core.providers.provider import ProviderSpec, outcome_of
from holdfast.engine.execution.attempt_failures import AttemptFailures
from holdfast.engine.execution.context import CALLING
from holdfast.engine.execution.execution_state import ExecutionState
from holdfast.engine.execution.interrupts import Interrupted, LeaseLost
from holdfast.engine.providers.admission import BAD_OUTCOMES, Admission, Permit, PermitRefusal, PermitRequest


class ProviderCall:
    """A call that the job is about to make, or is making: its provider and its permit."""

    __slots__ = ("permit", "provider")

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.permit: Permit | None = None

    @property
    def called(self) -> str:
        """The name of the provider to call in fact: the declared one, or its backup."""
        return self.provider if self.permit is None else self.permit.provider.name


class ProviderCalls:
    """Acquires permits for an attempt; when one is refused, the job is held."""

    def __init__(
        self,
        state: ExecutionState,
        failures: AttemptFailures,
        admission: Admission,
        escalation: EscalationTable,
    ) -> None:
        self._state = state
        self._failures = failures
        self._admission = admission
        self._escalation = escalation
        self._under_way: set[ProviderCall] = set()
        self._left: asyncio.Event | None = None

    async def admit(self, provider: ProviderSpec, key: str, *, retry: bool) -> tuple[ProviderCall, Permit]:
        """Acquire a permit to call *provider*, or its backup.

        When it is refused, the job is held and its function unwound, once the job's concurrent calls have ended: one
        of them may be a trial, and a trial that is stopped has no outcome.
        """
        call = ProviderCall(provider.name)
        self._under_way.add(call)
        held_by = self._state.claim.held_by
        released_by = None if held_by is None else held_by.provider
        try:
            answer = await self._admission.acquire(provider, PermitRequest(key, retry, released_by))
        except BaseException:
            self.leave(call)
            raise
        if isinstance(answer, PermitRefusal):
            self.leave(call)
            held = self._held(answer)
            await self._wait_for_other_calls()
            raise held
        if self._state.is_over:  # asked by a thread whose job has ended, or belongs to another worker by now
            self.leave(call)
            answer.drop()
            raise LeaseLost
        call.permit = answer
        return call, answer

    def leave(self, call: ProviderCall) -> None:
        """Note that a call has ended."""
        self._under_way.discard(call)
        if self._left is not None:
            self._left.set()

    async def _wait_for_other_calls(self) -> None:
        """Wait until no other call is in flight, except those that this code is inside of."""
        around = set(CALLING.get())
        self._left = self._left or asyncio.Event()
        while self._under_way - around:
            self._left.clear()
            await self._left.wait()

    @asynccontextmanager
    async def block(self, provider: ProviderSpec, key: str) -> AsyncIterator[ProviderCall]:
        """Call *provider* in the block, with a permit; the yielded call names the provider to call in fact.

        Inside a call to the same provider, the permit of the outer call is used.
        """
        around = next((call for call in CALLING.get() if call.provider == provider.name), None)
        if around is not None:
            yield around
            return
        with self._state.in_flight.track():
            call, permit = await self.admit(provider, key, retry=self._state.number > 1)
            try:
                async with asyncio.timeout(permit.provider.timeout.total_seconds()):
                    yield call
            except BaseException as error:
                await self._end_call(permit, error)
                raise
            else:
                # A thread cannot be stopped: a late result is used, and counts as a failure of the provider.
                await permit.ended(CallOutcome.FAILURE if permit.is_overdue else CallOutcome.SUCCESS)
            finally:
                # Only now: a job that is held once this call has left stops what runs beside it, this report too.
                self.leave(call)

    async def _end_call(self, permit: Permit, error: BaseException) -> None:
        """Report a call whose block raised; hold the job if that is to cost no attempt."""
        if self._failures.is_control_flow(error):
            permit.drop()
        elif await self._report_failure(permit, self._failures.classify(error).failure):
            raise self._held(permit.refusal())

    async def failed(self, permit: Permit, failure: Failure, *, last: bool) -> Permit | None:
        """Report a failed call; return a permit to call a backup, if one is to be called.

        It is when the job has no attempt left for this provider and its escalation table names the backup, or when the
        call has only shown that the provider is still down. The latter costs no attempt: without a backup, the job is
        held.
        """
        costs_no_attempt = await self._report_failure(permit, failure)
        follows_last = last and Escalation.BACKUP in self._escalation[failure.error_class]
        if costs_no_attempt or (follows_last and outcome_of(failure) in BAD_OUTCOMES):
            backup = await self._admission.acquire_backup(permit.provider, permit.request)
            if isinstance(backup, Permit):
                return backup
            if costs_no_attempt:
                raise self._held(backup or permit.refusal())
        return None

    async def _report_failure(self, permit: Permit, failure: Failure) -> bool:
        """Report a failed call to the breaker; return whether the attempt is to be given back.

        A trial is made on behalf of all held jobs, and costs its job no attempt. Nor does a call that failed together
        with the one that opened the breaker.
        """
        outcome = outcome_of(failure)
        wait = None if failure.wait is None else failure.wait.total_seconds()
        counted = await permit.ended(outcome, wait=wait)
        return outcome in BAD_OUTCOMES and (permit.is_trial or not counted)

    def _held(self, refusal: PermitRefusal) -> Interrupted:
        """Hold the job for what refuses the call; return what to raise."""
        self._state.postpone(hold(self._state.claim, refusal.reason, held_by=refusal.holder))
        return Interrupted(refusal.reason)
