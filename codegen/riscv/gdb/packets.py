"""Packets of GDB's remote protocol over a connection: `$text#checksum`, acknowledged until both sides agree not to.

Source: the chapter "GDB Remote Serial Protocol" of GDB's manual.
"""

from __future__ import annotations

import select
import socket

MOST_BYTES = 1 << 14
"""Largest packet, in bytes; what is longer ends the connection."""

INTERRUPT = "\x03"
"""What stands for a request to stop, which is no packet."""


class Closed(Exception):
    """The other side has gone, or sends what is no packet."""


class Connection:
    """Packets over a socket."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._waiting = bytearray()
        self.acknowledged = True

    def receive(self) -> str:
        """The next packet's text, or INTERRUPT. Raises Closed."""
        while True:
            first = self._bytes(1)
            if first == b"\x03":
                return INTERRUPT
            if first != b"$":
                continue  # an acknowledgement, or what is left of a broken packet
            payload = self._until_hash()
            sent = self._bytes(2)
            right = f"{sum(payload) & 0xFF:02x}".encode() == sent.lower()
            if self.acknowledged:
                self._send(b"+" if right else b"-")
            if right:
                return _unescaped(payload)

    def send(self, text: str) -> None:
        """Send a packet of ASCII text. Raises Closed."""
        data = text.encode("ascii")
        self._send(b"$%b#%02x" % (data, sum(data) & 0xFF))

    def interrupted(self) -> bool:
        """Whether a request to stop has arrived; it is taken. Raises Closed."""
        if not self._waiting and select.select([self._stream], [], [], 0)[0]:
            self._more()
        while self._waiting.startswith((b"+", b"-")):
            del self._waiting[:1]
        found = self._waiting.startswith(b"\x03")
        if found:
            del self._waiting[:1]
        return found

    def _until_hash(self) -> bytes:
        found = bytearray()
        while (byte := self._bytes(1)) != b"#":
            found += byte
            if len(found) > MOST_BYTES:
                raise Closed
        return bytes(found)

    def _bytes(self, count: int) -> bytes:
        while len(self._waiting) < count:
            self._more()
        taken = bytes(self._waiting[:count])
        del self._waiting[:count]
        return taken

    def _more(self) -> None:
        try:
            data = self._stream.recv(4096)
        except OSError as error:
            raise Closed from error
        if not data:
            raise Closed
        self._waiting += data

    def _send(self, data: bytes) -> None:
        try:
            self._stream.sendall(data)
        except OSError as error:
            raise Closed from error


def _unescaped(payload: bytes) -> str:
    """The text of a packet: `}` says that the next byte was changed, so that it is none of the marks."""
    made = bytearray()
    bytes_left = iter(payload)
    for byte in bytes_left:
        made.append(next(bytes_left, 0x20) ^ 0x20 if byte == 0x7D else byte)
    return made.decode("latin-1")
