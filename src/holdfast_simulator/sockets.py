"""Socket operations that asyncio lacks: bind a port without listening, and reset a connection."""

import asyncio
import os
import socket
import struct

_NO_LINGER = struct.pack("ii", 1, 0)


def bind_loopback(port: int) -> socket.socket:
    """Bind a port of the loopback interface, any free one for 0. Connections to it are refused."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", port))
    except OSError:
        bound.close()
        raise
    return bound


def reset(writer: asyncio.StreamWriter) -> None:
    """Close a connection with an RST; buffered data is lost."""
    transport = writer.transport
    exposed = transport.get_extra_info("socket")
    if exposed is not None and not transport.is_closing():
        # A copy of the descriptor, because the socket object of a transport may not allow options.
        with socket.socket(fileno=os.dup(exposed.fileno())) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
