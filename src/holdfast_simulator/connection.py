"""One connection: it reads requests, and sends answers or injects faults."""

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
from holdfast_simulator.provider import Provider, ReceivedCall
from holdfast_simulator.sockets import reset

_DRAIN_SECONDS = 1.0
_CHUNK_SIZE = 65_536


class Connection:
    """Serves one client until it disconnects or a fault ends the connection."""

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
        """Serve requests one after another. A client that disconnects is not an error.

        Waiting for a request has no timeout: closing an idle connection would be a fault that
        is not in the script. The owner of the task ends it.
        """
        try:
            while await self._serve_one():
                pass
        except RequestError as error:
            await self._reject(error)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client has disconnected; the effects of its calls are in the log
        finally:
            self._writer.close()

    async def _serve_one(self) -> bool:
        head = await read_head(self._reader)
        if head is None:
            return False
        if head.path.startswith("/_control/"):
            answer = self._control.answer(head, await self._read_body(head))
            return await self._send(head, answer)
        return await self._serve_call(head)

    async def _serve_call(self, head: Head) -> bool:
        body = await self._read_body(head) if self._provider.script.looks_into_bodies else None
        call = self._provider.receive(head, body)
        if body is None and not (call.fault is not None and call.fault.at is Moment.BEFORE_READING):
            body = await self._read_body(head)
        await self._delay(call, Moment.BEFORE_EFFECT)
        answer = self._provider.perform(call, body)
        await self._delay(call, Moment.AFTER_EFFECT)
        if call.fault is None and answer is not None:
            return await self._send(head, answer)
        return await self._inject(head, call.fault, answer)

    async def _inject(self, head: Head, fault: Fault | None, answer: Answer | None) -> bool:
        match fault:
            case Reset():
                reset(self._writer)
            case Refuse():
                self._refuse(fault.duration)
                reset(self._writer)
            case Hang():
                await self._read_until_closed()
            case Truncate() if answer is not None:
                await self._send_part(head, answer, keep=fault.keep)
            case Drip() if answer is not None:
                await self._send_byte_by_byte(head, answer, pause=fault.pause)
            case Flood():
                await self._send_endless_body(head)
            case Close() | Truncate() | Drip() | None:
                pass
            case Status() | RateLimit() | Slow() | WrongSchema() | InvalidJson() | OverloadedStream():
                return answer is not None and await self._send(head, answer)
            case _:
                assert_never(fault)
        return False

    async def _read_body(self, head: Head) -> bytes:
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
        # The last byte is never sent: a complete answer would not be a fault.
        self._writer.write(wire.head + wire.payload[:-1][:kept])
        await self._writer.drain()

    async def _send_byte_by_byte(self, head: Head, answer: Answer, *, pause: timedelta) -> None:
        wire = to_wire(answer, keeps_alive=head.keeps_alive)
        self._writer.write(wire.head)
        for byte in wire.payload:
            await asyncio.sleep(pause.total_seconds())
            self._writer.write(bytes([byte]))
            await self._writer.drain()

    async def _send_endless_body(self, head: Head) -> None:
        chunk = b" " * _CHUNK_SIZE
        self._writer.write(to_wire(Answer(200, events=(chunk,)), keeps_alive=head.keeps_alive).head)
        while True:  # ends with a ConnectionError when the client has disconnected
            self._writer.write(b"%x\r\n%s\r\n" % (_CHUNK_SIZE, chunk))
            await self._writer.drain()

    async def _delay(self, call: ReceivedCall, moment: Moment) -> None:
        if isinstance(call.fault, Slow) and call.fault.at is moment:
            await asyncio.sleep(call.fault.delay.total_seconds())

    async def _read_until_closed(self) -> None:
        while await self._reader.read(65536):
            pass

    async def _reject(self, error: RequestError) -> None:
        wire = to_wire(error_answer(error.status, "bad_request", str(error)), keeps_alive=False)
        try:
            self._writer.write(wire.head + wire.payload)
            self._writer.write_eof()
            # Closing with unread bytes would reset the connection and discard the answer.
            async with asyncio.timeout(_DRAIN_SECONDS):
                await self._read_until_closed()
        except (OSError, TimeoutError):
            pass  # the client has disconnected, or keeps the connection open after the answer
