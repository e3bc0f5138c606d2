"""One connection: requests come in, and answers or faults go out."""

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import assert_never

from holdfast_simulator.control import Control
from holdfast_simulator.faults import (
    Close,
    Drip,
    Fault,
    Flood,
    Hang,
    InvalidJson,
    Moment,
    OverloadedStream,
    RateLimit,
    Refuse,
    Reset,
    Slow,
    Status,
    Truncate,
    WrongSchema,
)
from holdfast_simulator.http import Answer, Head, RequestError, error_answer, read_body, read_head, to_wire
from holdfast_simulator.provider import Arrival, Provider
from holdfast_simulator.sockets import reset

_FAREWELL = 1.0
_WAVE = 65_536


class Exchange:
    """Serves one client until it leaves or a fault ends the connection."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        provider: Provider,
        control: Control,
        refuse: Callable[[timedelta], None],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._provider = provider
        self._control = control
        self._refuse = refuse

    async def run(self) -> None:
        """Serve request after request. A client that leaves in the middle is no error.

        Waiting for a request has no limit: cutting an idle connection would be a fault that
        nobody scripted. The owner of the task ends it.
        """
        try:
            while await self._serve_one():
                pass
        except RequestError as error:
            await self._turn_away(error)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has left; what was done for it is in the log
        finally:
            self._writer.close()

    async def _serve_one(self) -> bool:
        head = await read_head(self._reader)
        if head is None:
            return False
        if head.path.startswith("/_control/"):
            answer = self._control.answer(head, await self._body(head))
            return await self._send(head, answer)
        return await self._serve_call(head)

    async def _serve_call(self, head: Head) -> bool:
        body = await self._body(head) if self._provider.script.looks_into_bodies else None
        arrival = self._provider.admit(head, body)
        if body is None and not _strikes(arrival, Moment.BEFORE_READING):
            body = await self._body(head)
        await self._pause(arrival, Moment.BEFORE_EFFECT)
        answer = self._provider.perform(arrival, body)
        await self._pause(arrival, Moment.AFTER_EFFECT)
        if arrival.fault is None and answer is not None:
            return await self._send(head, answer)
        return await self._fail(head, arrival.fault, answer)

    async def _fail(self, head: Head, fault: Fault | None, answer: Answer | None) -> bool:
        match fault:
            case Reset():
                reset(self._writer)
            case Refuse():
                self._refuse(fault.duration)
                reset(self._writer)
            case Hang():
                await self._until_client_leaves()
            case Truncate() if answer is not None:
                await self._send_part(head, answer, keep=fault.keep)
            case Drip() if answer is not None:
                await self._send_drops(head, answer, pause=fault.pause)
            case Flood():
                await self._send_without_end(head)
            case Close() | Truncate() | Drip() | None:
                pass
            case Status() | RateLimit() | Slow() | WrongSchema() | InvalidJson() | OverloadedStream():
                return answer is not None and await self._send(head, answer)
            case _:
                assert_never(fault)
        return False

    async def _body(self, head: Head) -> bytes:
        if head.headers.get("expect", "").lower() == "100-continue":
            self._writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return await read_body(self._reader, head)

    async def _send(self, head: Head, answer: Answer) -> bool:
        wire = to_wire(answer, keeps_alive=head.keeps_alive, with_body=head.method != "HEAD")
        self._writer.write(wire.head + wire.payload)
        await self._writer.drain()
        return head.keeps_alive

    async def _send_part(self, head: Head, answer: Answer, *, keep: int | None) -> None:
        wire = to_wire(answer, keeps_alive=head.keeps_alive)
        kept = len(wire.payload) // 2 if keep is None else keep
        # The last byte is always withheld: a whole answer would be no fault.
        self._writer.write(wire.head + wire.payload[:-1][:kept])
        await self._writer.drain()

    async def _send_drops(self, head: Head, answer: Answer, *, pause: timedelta) -> None:
        wire = to_wire(answer, keeps_alive=head.keeps_alive)
        self._writer.write(wire.head)
        for byte in wire.payload:
            await asyncio.sleep(pause.total_seconds())
            self._writer.write(bytes([byte]))
            await self._writer.drain()

    async def _send_without_end(self, head: Head) -> None:
        wave = b" " * _WAVE
        self._writer.write(to_wire(Answer(200, events=(wave,)), keeps_alive=head.keeps_alive).head)
        while True:  # a client that has left ends it with a ConnectionError
            self._writer.write(b"%x\r\n%s\r\n" % (_WAVE, wave))
            await self._writer.drain()

    async def _pause(self, arrival: Arrival, moment: Moment) -> None:
        if isinstance(arrival.fault, Slow) and arrival.fault.at is moment:
            await asyncio.sleep(arrival.fault.delay.total_seconds())

    async def _until_client_leaves(self) -> None:
        while await self._reader.read(65536):
            pass

    async def _turn_away(self, error: RequestError) -> None:
        wire = to_wire(error_answer(error.status, "bad_request", str(error)), keeps_alive=False)
        try:
            self._writer.write(wire.head + wire.payload)
            self._writer.write_eof()
            # Closing on unread bytes would reset the connection and take the answer with it.
            async with asyncio.timeout(_FAREWELL):
                await self._until_client_leaves()
        except (OSError, TimeoutError):
            pass  # the client has left or will not; either way it was told


def _strikes(arrival: Arrival, moment: Moment) -> bool:
    return arrival.fault is not None and arrival.fault.at is moment
