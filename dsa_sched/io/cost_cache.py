"""Times that were taken before, in the user's cache folder: one small file for each part on each device.

    part hash + device identity --SHA-256--> FOLDER/KEY.json <--> nanoseconds

Refusals are not kept: they come from compilers that will be fixed, and repeating one needs no timing.

Files may have been damaged or put there by others: one that is not exactly what this module writes for its key is as
good as absent, and a new measurement replaces it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from dsa_sched.io.atomic_write import write_whole
from hw_models.errors import UserError
from hw_models.user_cache import cache_directory

FORMAT = 2
LARGEST_FILE_BYTES = 4096
LONGEST_NS = 10**15
"""Longest accepted time in ns: eleven days."""


@dataclass(frozen=True)
class CostCache:
    """A folder of prices. A folder that cannot be written costs the time of measuring and nothing else."""

    folder: Path

    @staticmethod
    def of_user() -> CostCache | None:
        """The one in the user's cache directory; None without a home directory."""
        directory = cache_directory()
        return CostCache(directory / "costs") if directory else None

    def find(self, part: str, device: str) -> int | None:
        """Time in ns of the part with this hash on the device with this identity; None if there is no trusted one."""
        key = _key(part, device)
        try:
            with (self.folder / f"{key}.json").open("rb") as file:
                data = file.read(LARGEST_FILE_BYTES + 1)
        except (OSError, ValueError):
            return None
        try:
            fields = json.loads(data) if len(data) <= LARGEST_FILE_BYTES else None
        except (ValueError, RecursionError):
            return None
        ns = fields.get("ns") if isinstance(fields, dict) else None
        return ns if type(ns) is int and 0 <= ns <= LONGEST_NS and data == _text(key, ns) else None

    def keep(self, part: str, device: str, ns: int) -> None:
        """Whole or not at all."""
        key = _key(part, device)
        data = _text(key, ns)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / f"{key}.json", lambda stream: stream.write(data))
        except (OSError, UserError):
            return


def _key(part: str, device: str) -> str:
    return hashlib.sha256(json.dumps([FORMAT, part, device]).encode()).hexdigest()


def _text(key: str, ns: int) -> bytes:
    """The only bytes that a file of this key and time may have; the seal finds damage, it is no signature."""
    content = {"key": key, "ns": ns}
    seal = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps({**content, "seal": seal}, indent=1).encode() + b"\n"
