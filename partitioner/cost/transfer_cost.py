"""Cost of reading a value that another core, or a shared memory, holds: cycles by the cost model.

where a value lies on which core, what a core needs of it --> cycles until it is there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hw_models.cost import copy_cycles, transfer_cycles
from partitioner.context.plan_context import PlanContext
from partitioner.ir.graph import Tensor
from partitioner.ir.regions import Box, box_shape, box_size, common, holds, relative, run_count
from partitioner.tiling.core_partition import load_cycles, store_cycles
from partitioner.tiling.tile_loads import MOST_RUNS, maximal


@dataclass(frozen=True, slots=True)
class TransferCosts:
    """Cycles of transfers between the cores' local memory and the shared one, the staging memory."""

    ctx: PlanContext
    known: dict[object, float] = field(default_factory=dict, compare=False)
    """Cycles of moves, by the type of a value, the boxes where it lies and the boxes needed."""

    def shared(self, name: str, boxes: Mapping[int, Box], needs: Sequence[Mapping[int, Box]]) -> float:
        """Cycles to store a value in the shared memory and to load what each reader needs."""
        tensor = self.ctx.graph.by_name[name]
        store = store_cycles(self.ctx.chip, self.ctx.roles.local.memory, tensor, max(boxes.values(), key=box_size))
        return store + sum(
            load_cycles(self.ctx.chip, self.ctx.roles.local.memory, tensor, max(need.values(), key=box_size))
            for need in needs
            if need
        )

    def moved(self, name: str, boxes: Mapping[int, Box], need: Mapping[int, Box]) -> float:
        """Cycles of a move step: a core's own parts are copied inside the core, those of others go through the shared
        memory; 0 if everything is in place already."""
        tensor = self.ctx.graph.by_name[name]
        key = tensor.dtype, tensor.item_bytes, tuple(boxes.items()), tuple(need.items())
        if key not in self.known:
            self.known[key] = self._moved(tensor, boxes, need)
        return self.known[key]

    def _moved(self, tensor: Tensor, boxes: Mapping[int, Box], need: Mapping[int, Box]) -> float:
        if all(core in boxes and holds(boxes[core], box) for core, box in need.items()):
            return 0.0
        item_bytes = tensor.item_bytes
        given: dict[int, dict[Box, None]] = {}
        taken: list[float] = []
        for core, box in need.items():
            own = box_size(common(boxes[core], box)) if core in boxes else 0
            copied = copy_cycles(self.ctx.chip, self.ctx.roles.local.memory, own, tensor.dtype, item_bytes)
            parts = {
                other: part for other, held in boxes.items() if other != core and box_size(part := common(held, box))
            }
            if any(run_count(box_shape(box), relative(part, box)) > MOST_RUNS for part in parts.values()):
                taken.append(
                    copied
                    + self._link(self.ctx.roles.staging, self.ctx.roles.local.memory, box_size(box) * item_bytes, 1)
                )
                parts |= {core: common(boxes[core], box)} if core in boxes else {}
            else:
                size = sum(box_size(part) for part in parts.values())
                taken.append(
                    copied
                    + self._link(self.ctx.roles.staging, self.ctx.roles.local.memory, size * item_bytes, len(parts))
                )
            for other, part in parts.items():
                given.setdefault(other, {})[part] = None
        stored = (
            self._link(
                self.ctx.roles.local.memory,
                self.ctx.roles.staging,
                sum(map(box_size, maximal(parts))) * item_bytes,
                len(parts),
            )
            for parts in given.values()
        )
        return max(taken) + max(stored, default=0.0) + 3 * self.ctx.chip.assumed.sync_cycles

    def main_cycles(self, size_bytes: int, readers: int) -> float:
        """Additional cycles where a value of that size waits in the main memory: once there, and back for each
        reader."""
        main = self.ctx.roles.main
        if main == self.ctx.roles.staging:
            return 0.0
        back = transfer_cycles(self.ctx.chip, main, self.ctx.roles.staging, size_bytes)
        return transfer_cycles(self.ctx.chip, self.ctx.roles.staging, main, size_bytes) + readers * back

    def shared_cycles(self, size_bytes: int) -> float:
        """Cycles for all of a value from the cores' memories to the staging memory, or back: each core has an even
        part."""
        each = -(-size_bytes // self.ctx.chip.cores_per_cluster)
        return self._link(self.ctx.roles.local.memory, self.ctx.roles.staging, each, 1)

    def _link(self, source: str, destination: str, size_bytes: int, rows: int) -> float:
        sharers = self.ctx.chip.cores_per_cluster
        return transfer_cycles(self.ctx.chip, source, destination, size_bytes, max(1, rows), sharers=sharers)
