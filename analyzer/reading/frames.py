"""Messages over a pipe: a length (8 bytes, little endian), then so many bytes."""

from __future__ import annotations

from typing import IO

import msgspec

_TRUE = msgspec.msgpack.encode(True)


def is_last(message: bytes) -> bool:
    """Whether an encoded chunk is the last of its job: it is the one that ends in a true flag."""
    return message[-1:] == _TRUE


def write_frame(stream: IO[bytes], message: bytes) -> None:
    """Send one message."""
    stream.write(len(message).to_bytes(8, "little"))
    stream.write(message)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """Receive one message; None at the end of the stream, even in the middle of a message."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    length = int.from_bytes(head, "little")
    message = stream.read(length)
    return message if len(message) == length else None
