"""A server of GDB's remote protocol: threads are cores, which a debugger stops, steps and looks into.

    Connection, Debuggee --serve--> the end of the run

A debugger that leaves (`detach`) lets the program go on to its end; one that kills it, or goes away, ends the run.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from codegen.riscv.gdb.packets import INTERRUPT, MOST_BYTES, Closed, Connection

SIGINT, SIGTRAP, SIGSEGV = 2, 5, 11
LOOPBACK = "127.0.0.1"
REGISTERS = 33
"""x0 to x31, then pc: what `g` and `G` are about."""

FIRST_FLOAT, FIRST_CSR = 33, 65
"""Numbers of f0 and of CSR 0, as GDB itself counts the registers of RISC-V."""

_HEX = "([0-9a-fA-F]{1,16})"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run has stopped: a signal on a core (counted from 0), or its end with an exit code. `words` are for the
    person at the debugger."""

    core: int
    signal: int = SIGTRAP
    exit_code: int | None = None
    words: str = ""


class Debuggee(Protocol):
    """A run that a debugger can stop. Cores are counted from 0; addresses are those that the core sees."""

    @property
    def cores(self) -> int: ...
    @property
    def register_bytes(self) -> int: ...

    def description(self) -> str:
        """The registers as a target description in XML."""

    def about(self, core: int) -> str:
        """What a core is doing, in a few words."""

    def register(self, core: int, number: int) -> int | None:
        """The value of a register by GDB's number; None where there is none."""

    def set_register(self, core: int, number: int, value: int) -> bool:
        """Change a register; whether that is possible."""

    def read(self, core: int, address: int, size_bytes: int) -> bytes | None:
        """Bytes of memory; None where there is no memory."""

    def write(self, core: int, address: int, data: bytes) -> bool:
        """Change memory; whether that is possible."""

    def step(self, core: int) -> Stop:
        """Run one instruction of a core; other cores run where it waits for them."""

    def resume(self, breakpoints: frozenset[int], interrupted: Callable[[], bool], core: int | None) -> Stop:
        """Run all cores until one is about to run an instruction at a breakpoint; the core that stopped last goes on
        from one. With a core, run and stop that one alone; others run where it waits for them."""

    def finish(self) -> Stop:
        """Run to the end, without breakpoints."""


class _Left(Exception):
    """The debugger is done: `kill`, or `detach`, after which the program runs on."""

    def __init__(self, detached: bool) -> None:
        super().__init__()
        self.detached = detached


def served(port: int, debuggee: Debuggee, announce: Callable[[str], None]) -> Stop | None:
    """Wait for one debugger on a port of this machine, which no other machine reaches (0: any free one, which is
    announced), and serve it. Raises OSError for a port that is not free."""
    with socket.create_server((LOOPBACK, port), backlog=1) as listening:
        announce(f"waiting for a debugger on {LOOPBACK}:{listening.getsockname()[1]}")
        stream, _ = listening.accept()
    with stream:
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return serve(Connection(stream), debuggee)


def serve(connection: Connection, debuggee: Debuggee) -> Stop | None:
    """Answer until the program or the debugger ends; the end of the program, None where it was killed."""
    session = _Session(debuggee, connection)
    try:
        while True:
            packet = connection.receive()
            if packet != INTERRUPT:
                connection.send(session.answer(packet))
            if packet == "QStartNoAckMode":
                connection.acknowledged = False
            if session.stop.exit_code is not None:
                return session.stop
    except _Left as left:
        if not left.detached:
            return None
    except Closed:
        return None
    with suppress(Closed):  # who has detached may not wait for the answer
        connection.send("OK")
    return debuggee.finish()


class _Session:
    """What a debugger has asked for: the core that it looks at, its breakpoints, and why the run stopped last."""

    def __init__(self, debuggee: Debuggee, connection: Connection) -> None:
        self._debuggee, self._connection = debuggee, connection
        self._core = 0
        self._breakpoints: set[int] = set()
        self.stop = Stop(0)

    def answer(self, packet: str) -> str:
        """The answer to a packet: empty for what is not known, `E01` for what is not possible."""
        for pattern, method in _ANSWERS:
            found = pattern.fullmatch(packet)
            if found is not None:
                return method(self, *found.groups())
        return ""

    def supported(self) -> str:
        return f"PacketSize={MOST_BYTES:x};QStartNoAckMode+;qXfer:features:read+;vContSupported+"

    def ok(self) -> str:
        return "OK"

    def attached(self) -> str:
        return "1"

    def stopped(self) -> str:
        """A stop as the protocol says it; words for the person come before it."""
        stop = self.stop
        if stop.words:
            self._connection.send("O" + (stop.words + "\n").encode().hex())
        if stop.exit_code is not None:
            return f"W{stop.exit_code & 0xFF:02x}"
        self._core = stop.core
        return f"T{stop.signal:02x}thread:{stop.core + 1:x};"

    def current(self) -> str:
        return f"QC{self._core + 1:x}"

    def threads(self) -> str:
        return "m" + ",".join(f"{core + 1:x}" for core in range(self._debuggee.cores))

    def last_thread(self) -> str:
        return "l"

    def about(self, thread: str) -> str:
        core = self._of(thread)
        return "E01" if core is None else self._debuggee.about(core).encode().hex()

    def alive(self, thread: str) -> str:
        return "E01" if self._of(thread) is None else "OK"

    def select(self, thread: str) -> str:
        if thread in ("0", "-1"):
            return "OK"
        core = self._of(thread)
        if core is None:
            return "E01"
        self._core = core
        return "OK"

    def features(self, offset: str, length: str) -> str:
        text, first = self._debuggee.description(), int(offset, 16)
        part = text[first : first + min(int(length, 16), MOST_BYTES - 16)]
        return ("m" if first + len(part) < len(text) else "l") + part

    def registers(self) -> str:
        return "".join(self.register(f"{number:x}") for number in range(REGISTERS))

    def set_registers(self, text: str) -> str:
        digits = 2 * self._debuggee.register_bytes
        if len(text) != REGISTERS * digits:
            return "E01"
        parts = (text[place : place + digits] for place in range(0, len(text), digits))
        answers = [self.set_register(f"{number:x}", part) for number, part in enumerate(parts) if number]
        return "OK" if set(answers) == {"OK"} else "E01"

    def register(self, number: str) -> str:
        value = self._debuggee.register(self._core, int(number, 16))
        return "E01" if value is None else value.to_bytes(self._debuggee.register_bytes, "little").hex()

    def set_register(self, number: str, text: str) -> str:
        if len(text) != 2 * self._debuggee.register_bytes:
            return "E01"
        value = int.from_bytes(bytes.fromhex(text), "little")
        return "OK" if self._debuggee.set_register(self._core, int(number, 16), value) else "E01"

    def memory(self, address: str, size: str) -> str:
        count = min(int(size, 16), MOST_BYTES // 2)
        data = self._debuggee.read(self._core, int(address, 16), count) if count else b""
        return "E01" if data is None else data.hex()

    def set_memory(self, address: str, size: str, text: str) -> str:
        if len(text) != 2 * int(size, 16):
            return "E01"
        return "OK" if self._debuggee.write(self._core, int(address, 16), bytes.fromhex(text)) else "E01"

    def insert(self, address: str) -> str:
        self._breakpoints.add(int(address, 16))
        return "OK"

    def remove(self, address: str) -> str:
        self._breakpoints.discard(int(address, 16))
        return "OK"

    def resume_kinds(self) -> str:
        return "vCont;c;C;s;S"

    def step(self) -> str:
        self.stop = self._debuggee.step(self._core)
        return self.stopped()

    def resume(self, core: int | None = None) -> str:
        self.stop = self._debuggee.resume(frozenset(self._breakpoints), self._connection.interrupted, core)
        return self.stopped()

    def actions(self, text: str) -> str:
        """The first action decides: a step of its core, or that core goes on, alone where no other action follows."""
        first, *others = text.split(";")
        kind, _, thread = first.partition(":")
        every = thread in ("", "0", "-1")
        core = self._core if every else self._of(thread)
        if core is None:
            return "E01"
        if kind[:1] in ("c", "C"):
            return self.resume(None if every or others else core)
        self._core = core
        return self.step()

    def detach(self) -> str:
        raise _Left(detached=True)

    def kill(self) -> str:
        raise _Left(detached=False)

    def _of(self, thread: str) -> int | None:
        """The core of a thread; None where there is none."""
        found = re.fullmatch(_HEX, thread)
        core = int(thread, 16) - 1 if found else -1
        return core if 0 <= core < self._debuggee.cores else None


_ANSWERS: tuple[tuple[re.Pattern[str], Callable[..., str]], ...] = tuple(
    (re.compile(pattern), method)
    for pattern, method in (
        (r"qSupported(?::.*)?", _Session.supported),
        (r"QStartNoAckMode", _Session.ok),
        (r"qSymbol::", _Session.ok),
        (r"qAttached(?::.*)?", _Session.attached),
        (r"\?", _Session.stopped),
        (r"qC", _Session.current),
        (r"qfThreadInfo", _Session.threads),
        (r"qsThreadInfo", _Session.last_thread),
        (rf"qThreadExtraInfo,{_HEX}", _Session.about),
        (rf"T{_HEX}", _Session.alive),
        (r"H[gc](-1|[0-9a-fA-F]{1,8})", _Session.select),
        (rf"qXfer:features:read:target\.xml:{_HEX},{_HEX}", _Session.features),
        (r"g", _Session.registers),
        (r"G((?:[0-9a-fA-F]{2})+)", _Session.set_registers),
        (rf"p{_HEX}", _Session.register),
        (rf"P{_HEX}=((?:[0-9a-fA-F]{{2}})+)", _Session.set_register),
        (rf"m{_HEX},{_HEX}", _Session.memory),
        (rf"M{_HEX},{_HEX}:((?:[0-9a-fA-F]{{2}})*)", _Session.set_memory),
        (rf"Z[01],{_HEX},[0-9a-fA-F]+(?:;.*)?", _Session.insert),
        (rf"z[01],{_HEX},[0-9a-fA-F]+(?:;.*)?", _Session.remove),
        (r"vCont\?", _Session.resume_kinds),
        (r"vCont;([cCsS][^;]*(?:;.*)?)", _Session.actions),
        (r"[cC](?:[0-9a-fA-F]{2})?", _Session.resume),
        (r"[sS](?:[0-9a-fA-F]{2})?", _Session.step),
        (r"D(?:;.*)?", _Session.detach),
        (r"k|vKill;.*", _Session.kill),
    )
)
"""Packets and their answers; groups of a pattern are arguments."""
