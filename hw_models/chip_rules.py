"""Rules between the fields of a chip: parts of another kind of chip, references to names that do not exist, and the
like.

In: the values of a chip file, or a `Chip` whose fields are each well formed. Out: findings, each with a path, what is
wrong and what is allowed.
"""

from __future__ import annotations

import difflib
from collections.abc import Container, Iterator, Sequence

from hw_models.chip import PARTS_OF, Chip
from hw_models.errors import size_text
from hw_models.parts import ENGINE_KINDS, InstructionCache, Kind, Memory, Named, Proxies, Simt
from hw_models.yaml_nodes import Path

Finding = tuple[Path, str, str]

KIND_WORDS: dict[Kind, str] = {"cores": "an array of cores", "gpu": "a GPU"}


def parts_of_kind(kind: Kind, given: Container[str]) -> Iterator[Finding]:
    """Findings for parts that a kind of chip needs and that are not `given`, and for given parts of another kind."""
    for part in PARTS_OF[kind]:
        if part not in given:
            yield ((part,), "missing", f"{KIND_WORDS[kind]} (kind: {kind}) needs this field")
    for other, parts in PARTS_OF.items():
        for part in parts:
            if other != kind and part in given:
                needed = ", ".join(PARTS_OF[kind])
                said = f"is a part of {KIND_WORDS[other]}, and the chip is {KIND_WORDS[kind]} (kind: {kind})"
                yield ((part,), said, f"remove it, or write kind: {other}; a chip of kind {kind} has {needed}")


def contradictions(chip: Chip) -> Iterator[Finding]:
    """All contradictions between fields of the chip."""
    for field, parts in (("memories", chip.memories), ("engines", chip.engines), ("links", chip.links)):
        yield from _repeated((field,), parts)
    for index, memory in enumerate(chip.memories):
        yield from _memory(("memories", index), memory, chip)
    for index, engine in enumerate(chip.engines):
        path: Path = ("engines", index)
        if engine.kind not in ENGINE_KINDS[chip.kind]:
            said = f"kind {engine.kind!r} is not an engine of {KIND_WORDS[chip.kind]}"
            yield (path, said, f"allowed: {', '.join(map(repr, ENGINE_KINDS[chip.kind]))}")
        if engine.kind in ("matrix", "vector", "simt"):
            for dtype in _twice([rate.dtype for rate in engine.rates]):
                yield ((*path, "rates"), f"type {dtype} is given twice", "give one rate per type")
        if engine.kind == "scalar" and engine.instruction_cache is not None:
            yield from _instruction_cache((*path, "instruction_cache"), engine.instruction_cache, chip)
        if engine.kind == "tensor":
            for rate in _twice([f"{rate.instruction} of {rate.dtype}" for rate in engine.rates]):
                yield ((*path, "rates"), f"{rate} is given twice", "give one rate per instruction and type")
    yield from _links(chip)
    if chip.dma_part is not None:
        engines = [engine for engine in chip.engines if engine.kind == "dma"]
        yield from _refers(("dma", "engine"), chip.dma_part.engine, engines, "DMA engine")
    if chip.simt_part is not None:
        yield from _simt(chip.simt_part, chip)
    if chip.proxies is not None:
        yield from _proxies(chip.proxies, chip)


def _twice(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _repeated(path: Path, parts: Sequence[Named]) -> Iterator[Finding]:
    seen: set[str] = set()
    for index, part in enumerate(parts):
        if part.name in seen:
            yield ((*path, index, "name"), f"name {part.name!r} is used twice", "give each its own name")
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
        yield (
            (*path, "alignment_bytes"),
            f"{memory.size_bytes} bytes are not a multiple of it",
            "give a divisor of the size",
        )
    if memory.buffers_enforced and not memory.buffers:
        yield ((*path, "buffers_enforced"), "true, but the memory has no buffers", "list buffers, or write false")
    for field, names in (("read_by", memory.read_by), ("written_by", memory.written_by)):
        for index, name in enumerate(names):
            yield from _refers((*path, field, index), name, chip.engines, "engine")


def _instruction_cache(path: Path, cache: InstructionCache, chip: Chip) -> Iterator[Finding]:
    yield from _refers((*path, "memory"), cache.memory, chip.memories, "memory")
    for field in ("line_bytes", "ways"):
        number = getattr(cache, field)
        if number & number - 1:
            yield ((*path, field), f"{number}", "give a power of two")
    if cache.size_bytes % (cache.line_bytes * cache.ways) or cache.sets & cache.sets - 1 or not cache.sets:
        said = f"{cache.size_bytes} bytes in sets of {cache.ways} x {cache.line_bytes}"
        yield ((*path, "size_bytes"), said, "give a power of two of sets")


def _simt(simt: Simt, chip: Chip) -> Iterator[Finding]:
    memories = {memory.name: memory for memory in chip.memories}
    yield from _refers(("simt", "shared_memory"), simt.shared_memory, chip.memories, "memory")
    yield from _refers(("simt", "cache"), simt.cache, chip.memories, "memory")
    shared, cache = memories.get(simt.shared_memory), memories.get(simt.cache)
    if shared and shared.scope != "core":
        yield (("simt", "shared_memory"), f"{shared.name} belongs to the {shared.scope}", "give a memory of scope core")
    if shared and shared.persists:
        index = chip.memories.index(shared)
        said = f"{shared.name} loses its contents with its block of threads"
        yield (("memories", index, "persists"), said, "write persists: false")
    if cache and cache.scope == "core":
        yield (("simt", "cache"), f"{cache.name} belongs to each core", "give a memory of scope chip or cluster")
    if shared and simt.shared_bytes_per_block > shared.size_bytes:
        said = f"a block takes {simt.shared_bytes_per_block} bytes"
        yield (("simt", "shared_bytes_per_block"), said, f"memory {shared.name} has {shared.size_bytes}")
    for field, has, most_field, most in (
        ("threads_per_block", simt.threads_per_block, "threads_per_core", simt.threads_per_core),
        ("registers_per_thread", simt.registers_per_thread, "registers_per_core", simt.registers_per_core),
    ):
        if has > most:
            yield (("simt", field), f"{has} is more than {most_field}", f"at most {most}")
    if simt.threads_per_block % simt.warp_threads:
        said = f"{simt.threads_per_block} threads do not make whole warps"
        yield (("simt", "threads_per_block"), said, f"give a multiple of warp_threads, {simt.warp_threads}")


def _proxies(proxies: Proxies, chip: Chip) -> Iterator[Finding]:
    named: tuple[tuple[str, Sequence[Named], Sequence[Named], str], ...] = (
        ("memories", proxies.memories, chip.memories, "memory"),
        ("engines", proxies.engines, chip.engines, "engine"),
        ("links", proxies.links, chip.links, "link"),
    )
    for field, given, parts, what in named:
        yield from _repeated(("proxies", field), given)
        for index, each in enumerate(given):
            yield from _refers(("proxies", field, index, "name"), each.name, parts, what)
    multiply = [engine.name for engine in chip.engines if engine.kind in ("matrix", "tensor")]
    for index, engine in enumerate(proxies.engines):
        if engine.pj_per_mac is not None and engine.name not in multiply:
            said = f"{engine.name} has no multiply-accumulates that are counted"
            known = ", ".join(multiply) or "none"
            yield (("proxies", "engines", index, "pj_per_mac"), said, f"engines that have them: {known}")


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
            yield (path, f"a second link {way[0]} -> {way[1]} by {way[2]}", "give one link per way and engine")
        seen.add(way)


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "none"
