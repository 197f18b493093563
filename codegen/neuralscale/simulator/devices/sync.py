"""The hardware barriers: sixteen sync groups with member masks, and the rendezvous of pld.

Masks are active low (bit 0 = member). A group is checked only when a core arrives; the first complete group in number
order is released. All ids are hart ids, at most 32 on a chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

GROUPS: Final = 16
_ALL: Final = 0xFFFF_FFFF


class Barriers:
    """Arrival bits of sync and pld; programs read and write `masks` at 0xD0080000."""

    def __init__(self, hart_ids: Sequence[int]) -> None:
        self.masks = [_ALL] * GROUPS
        self.masks[0] = _ALL & ~sum(1 << hart for hart in hart_ids)
        self._arrived_sync = 0
        self._arrived_pld = 0

    def enter_sync(self, hart: int) -> int:
        """Let hart `hart` execute sync; return the bits of the harts that this releases (0 = it waits)."""
        self._arrived_sync |= 1 << hart
        for mask in self.masks:
            members = ~mask & _ALL
            if members and self._arrived_sync & members == members:
                self._arrived_sync &= ~members
                return members
        return 0

    def enter_pld(self, hart: int, core_map: int) -> int:
        """Let hart `hart` execute pld with `core_map`; return the bits of the harts that this releases."""
        self._arrived_pld |= 1 << hart
        if self._arrived_pld & core_map == core_map:
            self._arrived_pld &= ~core_map
            return core_map
        return 0

    def missing(self, hart: int) -> list[str]:
        """The harts for which each group of `hart` still waits, for a deadlock message."""
        lines = []
        for group, mask in enumerate(self.masks):
            members = ~mask & _ALL
            if members >> hart & 1:
                absent = [str(bit) for bit in range(32) if members & ~self._arrived_sync & _ALL & 1 << bit]
                lines.append(f"group {group} lacks core{'s' if len(absent) > 1 else ''} {', '.join(absent)}")
        return lines or ["it belongs to no sync group"]
