"""Times that were taken before, in the user's cache folder, by a part's hash and a device's identity.

Refusals are not kept: they come from compilers that will be fixed, and repeating one needs no timing. Files may have
been damaged or put there by others: one that is not what was written for its part is as good as absent, and a new
measurement replaces it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hw_models.cache import Cache, key_of

FORMAT = "3"
MOST_BYTES = 16 << 20
"""Largest size of a folder of times, in bytes: 100,000 of them."""

TIME = re.compile(rb"[0-9]{1,15}")
"""Accepted times in ns: eleven days and less."""


@dataclass(frozen=True)
class CostCache:
    """Times of parts on devices. A folder that cannot be written costs the time of measuring and nothing else."""

    cache: Cache

    @staticmethod
    def of_user(name: str) -> CostCache:
        """The times of that name in the user's cache folder."""
        return CostCache(Cache.of_user(name, MOST_BYTES))

    def find(self, part: str, device: str) -> int | None:
        """Time in ns of the part with this hash on the device with this identity; None if there is no trusted one."""
        key = key_of(FORMAT, part, device)
        owner, _, time = (self.cache.find(key) or b"").partition(b" ")
        return int(time) if owner == key.encode() and TIME.fullmatch(time) else None

    def keep(self, part: str, device: str, ns: int) -> None:
        """Keep a time in ns."""
        key = key_of(FORMAT, part, device)
        self.cache.keep(key, f"{key} {ns}".encode())
