"""Description of a chip: memories, engines, links, and how many of each. It knows nothing of networks or instructions.

In: the fields of a chip file (`hw_models.loading` reads and checks one). Out: one immutable `Chip` that the later
stages ask by name. The kind of a chip decides which parts (`hw_models.parts`) it has in addition to memories and
engines.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, field_validator
from pydantic_core import PydanticCustomError

from hw_models.errors import ChipError
from hw_models.parts import (
    Assumed,
    Count,
    Dma,
    Engine,
    InstructionCache,
    InstructionCosts,
    Kind,
    Line,
    Link,
    MatrixEngine,
    Memory,
    Name,
    Part,
    Proxies,
    ScalarEngine,
    Simt,
    SimtEngine,
    TensorEngine,
    TransferEngine,
    VectorEngine,
    named,
    names_of,
)

PARTS_OF: Mapping[Kind, tuple[str, ...]] = MappingProxyType({"cores": ("links", "dma", "assumed"), "gpu": ("simt",)})
"""Fields that a chip of each kind needs in addition to those of every chip, and that no other kind has."""

AnyEngine = TypeVar("AnyEngine", bound=MatrixEngine | VectorEngine | SimtEngine | TensorEngine)
AnyPart = TypeVar("AnyPart", bound=Part)


def _absent(part: Part | None) -> bool:
    return part is None


def _cores(kind: Kind) -> bool:
    return kind == "cores"


class Chip(Part):
    """One accelerator. Memories, engines and links are asked for by name; equal content means equal `hash`.

    The kind of a chip decides which parts it has: `links`, `dma` and `assumed`, or `simt`. Absent parts and defaults of
    `kind` and `persists` are not part of its hash and JSON; asking for an absent part is a ChipError. `proxies` are
    coefficients of area and energy, where somebody gave them.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    schema_version: Literal[1]
    name: Name
    description: Line
    kind: Annotated[Kind, Field(exclude_if=_cores)] = "cores"
    isa: Name
    clock_hz: Annotated[int, Field(ge=1, le=10**12)]
    clusters: Count
    cores_per_cluster: Count
    memories: Annotated[tuple[Memory, ...], Field(min_length=1)]
    engines: Annotated[tuple[Engine, ...], Field(min_length=1)]
    links: tuple[Link, ...] = ()
    dma_part: Dma | None = Field(default=None, alias="dma", exclude_if=_absent)
    assumed_part: Assumed | None = Field(default=None, alias="assumed", exclude_if=_absent)
    simt_part: Simt | None = Field(default=None, alias="simt", exclude_if=_absent)
    proxies: Proxies | None = Field(default=None, exclude_if=_absent)

    @field_validator("dma_part", "assumed_part", "simt_part", "proxies", mode="before")
    @classmethod
    def _filled(cls, value: object) -> object:
        """Refuse `null` in a file: None stands for a part that the file does not give."""
        if value is None:
            raise PydanticCustomError("model_type", "Input should be an object")
        return value

    @property
    def cores(self) -> int:
        """Cores of the whole chip."""
        return self.clusters * self.cores_per_cluster

    @property
    def hash(self) -> str:
        """SHA-256 of the content, in hexadecimal; comments and layout of the file do not count."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    @property
    def dma(self) -> Dma:
        """Limits of the DMA; ChipError when the chip has none."""
        return self._has(self.dma_part, "dma")

    @property
    def assumed(self) -> Assumed:
        """Costs of an array of cores that no document gives; ChipError when the chip is not an array of cores."""
        return self._has(self.assumed_part, "assumed")

    @property
    def instruction_cache(self) -> InstructionCache | None:
        """The memory that scalar cores fetch instructions from, and its cache; None where the file does not describe
        one."""
        caches = (engine.instruction_cache for engine in self.engines if isinstance(engine, ScalarEngine))
        return next(caches, None)

    @property
    def instruction_costs(self) -> InstructionCosts | None:
        """Instructions of the scalar cores that take longer than others; None where the file does not say."""
        return next((engine.costs for engine in self.engines if isinstance(engine, ScalarEngine)), None)

    def queue_depth(self, unit: str) -> int:
        """Instructions in flight of an engine of a core, the one at work counted."""
        queued = (MatrixEngine, VectorEngine, TransferEngine)
        own = (engine.queue_depth for engine in self.engines if engine.name == unit and isinstance(engine, queued))
        return next(own, None) or self.assumed.queue_depth

    @property
    def simt(self) -> Simt:
        """How a GPU runs blocks of threads; ChipError when the chip is not a GPU."""
        return self._has(self.simt_part, "simt")

    def memory(self, name: str) -> Memory:
        """The memory with that name; ChipError when there is none."""
        for memory in self.memories:
            if memory.name == name:
                return memory
        return named(self.memories, name, f"chip {self.name}", "memory")

    def engine(self, name: str) -> Engine:
        """The engine with that name; ChipError when there is none."""
        for engine in self.engines:
            if engine.name == name:
                return engine
        return named(self.engines, name, f"chip {self.name}", "engine")

    @property
    def matrix(self) -> MatrixEngine:
        """The first matrix engine of a core; ChipError when there is none."""
        return self._engine_of(MatrixEngine, "matrix")

    @property
    def vector(self) -> VectorEngine:
        """The first vector engine of a core; ChipError when there is none."""
        return self._engine_of(VectorEngine, "vector")

    @property
    def lanes(self) -> SimtEngine:
        """The first engine of kind simt in a GPU core; ChipError when there is none."""
        return self._engine_of(SimtEngine, "simt")

    @property
    def tensor(self) -> TensorEngine:
        """The first engine of kind tensor in a GPU core; ChipError when there is none."""
        return self._engine_of(TensorEngine, "tensor")

    def link(self, source: str, destination: str, engine: str | None = None) -> Link:
        """The link between two memories (with `engine`, the one that it drives; else the first); ChipError when there
        is none."""
        for link in self.links:
            if (link.source, link.destination) == (source, destination) and engine in (None, link.engine):
                return link
        by = f" by engine {engine}" if engine else ""
        known = ", ".join(dict.fromkeys(f"{link.source} -> {link.destination}" for link in self.links))
        raise ChipError(f"chip {self.name}", needs=f"a link {source} -> {destination}{by}", has=known or "no links")

    def __str__(self) -> str:
        from hw_models.text import chip_text  # the text form reads these types

        return chip_text(self)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A chip with some fields changed, given by their names in a chip file. Values are not checked.

        Raises KeyError for a name that is not a field."""
        names = {field.alias or name: name for name, field in Chip.model_fields.items()}
        return super().model_copy(update={names[key]: value for key, value in (update or {}).items()}, deep=deep)

    def _has(self, part: AnyPart | None, field: str) -> AnyPart:
        if part is None:
            has = ", ".join(PARTS_OF[self.kind])
            raise ChipError(f"chip {self.name}", needs=f"the part {field}", has=f"kind {self.kind} with {has}")
        return part

    def _engine_of(self, kind: type[AnyEngine], word: str) -> AnyEngine:
        for engine in self.engines:
            if isinstance(engine, kind):
                return engine
        raise ChipError(f"chip {self.name}", needs=f"an engine of kind {word}", has=names_of(self.engines))
