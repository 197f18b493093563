"""Rules between the fields of a chip: names that refer to nothing, buffers that exceed their memory, and the like.

In: a `Chip` whose fields are each well formed. Out: findings, each a path, what is wrong and what is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

from hw_models.chip import Chip, Memory, Named
from hw_models.errors import size_text
from hw_models.yaml_nodes import Path

__all__ = ["Finding", "contradictions"]

Finding = tuple[Path, str, str]


def contradictions(chip: Chip) -> Iterator[Finding]:
    """Everything about the chip that cannot be true at once."""
    for field, parts in (("memories", chip.memories), ("engines", chip.engines), ("links", chip.links)):
        yield from _repeated((field,), parts)
    for index, memory in enumerate(chip.memories):
        yield from _memory(("memories", index), memory, chip)
    for index, engine in enumerate(chip.engines):
        if engine.kind in ("matrix", "vector"):
            dtypes = [rate.dtype for rate in engine.rates]
            for dtype in sorted({dtype for dtype in dtypes if dtypes.count(dtype) > 1}):
                yield (("engines", index, "rates"), f"type {dtype} is given twice", "one rate a type")
    yield from _links(chip)
    yield from _refers(("dma", "engine"), chip.dma.engine, [e for e in chip.engines if e.kind == "dma"], "DMA engine")


def _repeated(path: Path, parts: Sequence[Named]) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, part in enumerate(parts):
        if part.name in seen:
            yield ((*path, index, "name"), f"name {part.name!r} is used twice", "every name once")
        seen.add(part.name)


def _refers(path: Path, name: str, parts: Sequence[Named], what: str) -> Iterator[Finding]:
    names = [part.name for part in parts]
    if name not in names:
        close = difflib.get_close_matches(name, names, 1)
        guess = f"; did you mean {close[0]!r}?" if close else ""
        yield (path, f"there is no {what} named {name!r}", f"known: {', '.join(names) or 'none'}{guess}")


def _memory(path: Path, memory: Memory, chip: Chip) -> Iterator[Finding]:
    yield from _repeated((*path, "buffers"), memory.buffers)
    total = sum(buffer.size_bytes for buffer in memory.buffers)
    if total > memory.size_bytes:
        yield (
            (*path, "buffers"),
            f"the buffers take {total} bytes together",
            f"memory {memory.name} has {memory.size_bytes} ({size_text(memory.size_bytes)})",
        )
    if memory.size_bytes % memory.alignment_bytes:
        yield ((*path, "alignment_bytes"), f"{memory.size_bytes} bytes are no multiple of it", "a divisor of the size")
    if memory.buffers_enforced and not memory.buffers:
        yield ((*path, "buffers_enforced"), "true, but the memory has no buffers", "list buffers or write false")
    for field, names in (("read_by", memory.read_by), ("written_by", memory.written_by)):
        for index, name in enumerate(names):
            yield from _refers((*path, field, index), name, chip.engines, "engine")


def _links(chip: Chip) -> Iterator[Finding]:
    seen: set[tuple[str, str, str]] = set()
    memories = {memory.name: memory for memory in chip.memories}
    for index, link in enumerate(chip.links):
        path: Path = ("links", index)
        yield from _refers((*path, "engine"), link.engine, chip.engines, "engine")
        for field, name in (("source", link.source), ("destination", link.destination)):
            yield from _refers((*path, field), name, chip.memories, "memory")
        source, destination = memories.get(link.source), memories.get(link.destination)
        known = {engine.name for engine in chip.engines}
        if source and link.engine in known and link.engine not in source.read_by:
            yield ((*path, "source"), f"{link.engine} may not read {source.name}", f"readers: {_list(source.read_by)}")
        if destination and link.engine in known and link.engine not in destination.written_by:
            writers = _list(destination.written_by)
            yield ((*path, "destination"), f"{link.engine} may not write {destination.name}", f"writers: {writers}")
        way = (link.source, link.destination, link.engine)
        if way in seen:
            yield (path, f"a second link {way[0]} -> {way[1]} by {way[2]}", "one link for each way and engine")
        seen.add(way)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
