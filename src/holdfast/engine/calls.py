"""The calls to providers that one attempt makes: who lets them through, and what follows from their failures."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from holdfast.core.breakers import Outcome
from holdfast.core.exhaustion import Follow
from holdfast.core.failures import Failure
from holdfast.core.providers import ProviderSpec, outcome_of, provider_of
from holdfast.core.transitions import hold
from holdfast.engine.context import CALLING
from holdfast.engine.permits import BAD, Asking, Permit, Permits, Refusal
from holdfast.engine.unwinding import Interrupted, LeaseLost

if TYPE_CHECKING:
    from holdfast.engine.attempt import Attempt
    from holdfast.engine.stages import Stages


class Call:
    """A call that somebody is about to make, or is making: to whom, and with which leave."""

    __slots__ = ("permit", "provider")

    def __init__(self, provider: str) -> None:
        self.provider = provider
        self.permit: Permit | None = None

    @property
    def called(self) -> str:
        """Who is to be called in fact: the provider, or its backup."""
        return self.provider if self.permit is None else self.permit.provider.name


class Calls:
    """Asks for permits on behalf of an attempt; refused, its job is held."""

    def __init__(self, attempt: "Attempt", stages: "Stages", permits: Permits) -> None:
        self._attempt = attempt
        self._stages = stages
        self._permits = permits
        self._under_way: set[Call] = set()
        self._left: asyncio.Event | None = None

    async def admit(self, provider: ProviderSpec, key: str, *, retry: bool) -> tuple[Call, Permit]:
        """Get leave to call *provider*, or its backup.

        Refused, the job is held and its function unwound, once the calls have ended that it makes side by side: one
        of them may be a trial, and stopped it would say nothing, each time.
        """
        call = Call(provider.name)
        self._under_way.add(call)
        try:
            answer = await self._permits.ask(provider, Asking(key, retry, self._released_by()))
        except BaseException:
            self.leave(call)
            raise
        if isinstance(answer, Refusal):
            self.leave(call)
            held = self._held(answer)
            await self._others_left()
            raise held
        if self._attempt.is_over:  # a thread has asked whose job has ended, or is another worker's by now
            self.leave(call)
            answer.drop()
            raise LeaseLost
        call.permit = answer
        return call, answer

    def _released_by(self) -> str | None:
        held_by = self._attempt.claim.held_by
        return None if held_by is None else provider_of(held_by) or None

    def leave(self, call: Call) -> None:
        """Say that a call is not under way any more."""
        self._under_way.discard(call)
        if self._left is not None:
            self._left.set()

    async def _others_left(self) -> None:
        """Wait until no call is under way, save those that this code is in the middle of."""
        around = set(CALLING.get())
        self._left = self._left or asyncio.Event()
        while self._under_way - around:
            self._left.clear()
            await self._left.wait()

    @asynccontextmanager
    async def block(self, provider: ProviderSpec, key: str) -> AsyncIterator[Call]:
        """Make a call to *provider* in the block, with its leave; the call says who is to be called in fact.

        In the middle of a call to the same provider, that one's leave is good for this one, too.
        """
        around = next((call for call in CALLING.get() if call.provider == provider.name), None)
        if around is not None:
            yield around
            return
        with self._stages.bustle.under_way():
            call, permit = await self.admit(provider, key, retry=self._attempt.number > 1)
            try:
                async with asyncio.timeout(permit.provider.timeout.total_seconds()):
                    yield call
            except BaseException as error:
                await self._stopped(permit, error)
                raise
            else:
                # In a thread nobody could stop it: what came too late is taken, and held against the provider.
                await permit.ended(Outcome.FAILURE if permit.is_overdue else Outcome.SUCCESS)
            finally:
                # Only now: whoever is held as soon as this is over stops what runs beside it, its verdict included.
                self.leave(call)

    async def _stopped(self, permit: Permit, error: BaseException) -> None:
        """Tell how a call ended that its own code did not end; the job is held if that is to cost no attempt."""
        if self._stages.says_nothing(error):
            permit.drop()
        elif await self._told(permit, self._attempt.failure_of(error)):
            raise self._held(permit.refused_again())

    async def failed(self, permit: Permit, failure: Failure, *, last: bool) -> Permit | None:
        """Tell that a call failed, and get leave to call a backup, if it is time for that.

        It is when the job had no attempt left for this provider and its table names the backup, or its call has only shown that the
        provider is not back. The latter costs no attempt: without a backup, the job is held.
        """
        spared = await self._told(permit, failure)
        follows_last = last and Follow.BACKUP in self._attempt.exhaustion[failure.error_class]
        if spared or (follows_last and outcome_of(failure) in BAD):
            backup = await self._permits.ask_backup(permit.provider, permit.asking)
            if isinstance(backup, Permit):
                return backup
            if spared:
                raise self._held(backup or permit.refused_again())
        return None

    async def _told(self, permit: Permit, failure: Failure) -> bool:
        """Tell the gate of a failed call; true if the attempt is to be given back for it.

        A trial stands for all jobs that are held, and fails for all of them. A call that was refused together
        with one that has shut the gate tells nothing new.
        """
        outcome = outcome_of(failure)
        wait = None if failure.wait is None else failure.wait.total_seconds()
        counted = await permit.ended(outcome, wait=wait)
        return outcome in BAD and (permit.is_trial or not counted)

    def _held(self, refusal: Refusal) -> Interrupted:
        return self._stages.put_back(
            hold(self._attempt.claim, refusal.reason, held_by=refusal.holder), refusal.reason
        )
