"""Constants that all cores read at the same time come by one broadcast."""

from __future__ import annotations

from isched.lowering.lower import TileCode, together
from isched.program.program import Instr, Region


def instr(engine: str, reads: int, writes: int, name: str = "") -> Instr:
    """Reads and writes 8 bytes each at these offsets of L1."""
    return Instr(engine, name or engine, (), (Region("L1", reads, 8),), (Region("L1", writes, 8),))


def test_constants_are_broadcast_where_all_cores_read_the_same() -> None:
    def codes(*sources: int) -> list[TileCode]:
        return [TileCode((instr("transfer", source, 0, "copy"),), ()) for source in sources]

    def mark(instr: Instr, cores: tuple[int, ...]) -> Instr:
        return Instr(instr.engine, f"broadcast to {len(cores)}", (), instr.reads, instr.writes)

    def opcodes(found: dict[int, list[TileCode]]) -> dict[int, list[str]]:
        return {core: [tile.constants[0].opcode for tile in tiles] for core, tiles in found.items()}

    found = opcodes(together({0: codes(0, 8, 16), 2: codes(0, 24)}, mark))
    assert found == {0: ["broadcast to 2", "copy", "copy"], 2: ["broadcast to 2", "copy"]}
    assert opcodes(together({0: codes(0)}, mark)) == {0: ["copy"]}
