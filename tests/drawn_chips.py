"""Chip files drawn at random around the built-in array of cores: other counts, sizes, alignments, names and parts."""

from __future__ import annotations

from random import Random
from typing import Any

from hw_models.loading import load_chip

KIB = 1024
NAMES = {"DDR": "dram", "LLB": "shared", "L1": "scratchpad", "IM": "sums"}
Fields = dict[str, Any]


def drawn_chip(seed: int) -> Fields:
    """The fields of a chip file: a smaller chip of the family, half of them with something too large or missing."""
    rng, fields = Random(seed), load_chip("stcp920").model_dump(mode="json")
    fields["name"] = f"drawn{seed}"
    fields["clusters"], fields["cores_per_cluster"] = rng.randint(1, 4), rng.randint(1, 8)
    _sizes(rng, {memory["name"]: memory for memory in fields["memories"]})
    _bandwidths(rng, fields)
    _engines(rng, fields["engines"])
    _dma(rng, fields["dma"])
    for change in rng.choice(((), (_exceed,), (_take_away,))):
        change(rng, fields)
    if rng.random() < 0.3:
        rename_memories(fields, NAMES)
    return fields


def _sizes(rng: Random, memories: Fields) -> None:
    local = memories["L1"]
    data, weights = rng.choice((32, 256, 768, 1024)), rng.choice((16, 32, 256))
    local["size_bytes"] = (data + weights) * KIB
    local["buffers"][0]["size_bytes"], local["buffers"][1]["size_bytes"] = data * KIB, weights * KIB
    local["buffers_enforced"] = rng.random() < 0.7
    memories["IM"]["size_bytes"] = rng.choice((16, 64, 256)) * KIB
    memories["LLB"]["size_bytes"] = rng.choice((256, 1024, 4096, 8192)) * KIB
    memories["DDR"]["size_bytes"] = rng.choice((256, 1024, 3072)) * KIB * KIB
    memories["DDR"]["alignment_bytes"] = rng.choice((1, 2))


def _bandwidths(rng: Random, fields: Fields) -> None:
    for link in fields["links"]:
        link["bandwidth_bytes_per_cycle"] *= rng.choice((0.25, 1, 1, 2))
        link["latency_cycles"] = rng.choice((0, 10, 200))
        link["broadcast"] = link["broadcast"] and rng.random() < 0.8
    if rng.random() < 0.3:
        fields["links"] = [link for link in fields["links"] if link["name"] != "l1_to_l1"]


def _engines(rng: Random, engines: list[Fields]) -> None:
    for engine in engines:
        if engine["kind"] == "matrix":
            engine["array_pixels"], engine["array_channels"] = rng.choice((16, 32, 64)), rng.choice((16, 32, 64))
        if engine["kind"] == "vector":
            engine["lanes"] = rng.choice((16, 64, 128))


def _dma(rng: Random, dma: Fields) -> None:
    dma["engines_per_cluster"] = rng.choice((1, 2))
    dma["max_descriptors"] = rng.choice((1, 16, 170))
    dma["max_linear_bytes"] = rng.choice((4096, 4_194_304))
    dma["max_rows"], dma["max_stride_bytes"] = rng.choice((16, 65_535)), rng.choice((8192, 16_777_215))


def _exceed(rng: Random, fields: Fields) -> None:
    """Ask for what the instruction set does not have."""
    memory, engine = rng.choice(fields["memories"]), rng.choice(fields["engines"])
    match rng.choice(
        ("clusters", "cores", "size", "small", "alignment", "alignment", "extent", "dma", "gather", "scope")
    ):
        case "clusters":
            fields["clusters"] = rng.choice((5, 16))
        case "cores":
            fields["cores_per_cluster"] = rng.choice((9, 12, 64))
        case "size":
            memory["size_bytes"] *= 64
        case "small":
            fields["memories"][0]["size_bytes"] = 64 * KIB * KIB
        case "alignment":
            memory["alignment_bytes"] = rng.choice((1, 4, 16, 64))
        case "extent":
            engine |= {field: 1000 for field in ("max_extent", "max_stride_bytes") if field in engine}
        case "dma":
            fields["dma"] |= {"engines_per_cluster": rng.choice((2, 3)), "channels_per_engine": rng.choice((1, 3))}
        case "gather":
            fields["dma"]["gather"] = False
        case _:
            memory["scope"] = rng.choice(("chip", "cluster", "core"))


def _take_away(rng: Random, fields: Fields) -> None:
    """Leave out one part, and what names it: a memory, an engine, a link, the buffers of a memory, or a whole field."""
    match rng.choice(("memory", "engine", "link", "link", "buffers", "rate", "field")):
        case "memory":
            gone = rng.choice(fields["memories"])
            fields["memories"].remove(gone)
            ends = ("source", "destination")
            fields["links"] = [link for link in fields["links"] if gone["name"] not in [link[end] for end in ends]]
        case "engine":
            gone = rng.choice(fields["engines"])
            fields["engines"].remove(gone)
            fields["links"] = [link for link in fields["links"] if link["engine"] != gone["name"]]
            for memory in fields["memories"]:
                for way in ("read_by", "written_by"):
                    memory[way] = [name for name in memory[way] if name != gone["name"]]
        case "link":
            fields["links"].remove(rng.choice(fields["links"]))
        case "buffers":
            for memory in fields["memories"]:
                memory["buffers"], memory["buffers_enforced"] = [], False
        case "rate":
            engine = rng.choice([engine for engine in fields["engines"] if "rates" in engine])
            engine["rates"].remove(rng.choice(engine["rates"]))
        case _:
            del fields[rng.choice(("dma", "assumed", "links"))]


def rename_memories(fields: Fields, names: dict[str, str]) -> None:
    """Give the memories of a chip file other names, wherever it names them."""
    for memory in fields["memories"]:
        memory["name"] = names[memory["name"]]
    for link in fields.get("links", ()):
        link["source"], link["destination"] = names[link["source"]], names[link["destination"]]
    for engine in fields["engines"]:
        if cache := engine.get("instruction_cache"):
            cache["memory"] = names[cache["memory"]]
