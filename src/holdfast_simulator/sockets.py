"""What asyncio does not offer: a port that is held without listening, and a connection that is reset."""

import asyncio
import os
import socket
import struct

_LINGER_NOT = struct.pack("ii", 1, 0)


def bind_loopback(port: int) -> socket.socket:
    """Bind a port of the loopback interface, any free one for 0. Connections to it are refused."""
    held = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        raise
    return held


def reset(writer: asyncio.StreamWriter) -> None:
    """Drop a connection with an RST; what was not yet sent is lost."""
    transport = writer.transport
    shown = transport.get_extra_info("socket")
    if shown is not None and not transport.is_closing():
        # A copy of the descriptor, because the socket that a transport shows may forbid options.
        with socket.socket(fileno=os.dup(shown.fileno())) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_NOT)
    transport.abort()
