"""Times that were taken before, in the user's cache folder: one small file for each part on each device.

    part hash + device identity --SHA-256--> FOLDER/KEY.json <--> Price(ns or a refusal)

Files may have been damaged or put there by others: one that is not exactly what this module writes for its key is as
good as absent, and what was measured again replaces it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from dsa_sched.placement.problem import NOT_ACCEPTED
from dsa_sched.user_cache import cache_directory
from dsa_sched.whole_file import write_whole
from hw_models.errors import UserError

__all__ = ["CostCache", "Price"]

FORMAT = 1
LARGEST_FILE_BYTES = 4096
LONGEST_NS = 10**15
"""Eleven days."""
LONGEST_REASON = 500


@dataclass(frozen=True, slots=True)
class Price:
    """What a part takes on a device, or NOT_ACCEPTED and why."""

    ns: int
    refusal: str = ""


@dataclass(frozen=True)
class CostCache:
    """A folder of prices. A folder that cannot be written costs the time of measuring and nothing else."""

    folder: Path

    @staticmethod
    def of_user() -> CostCache | None:
        """The one in the user's cache directory; None without a home directory."""
        directory = cache_directory()
        return CostCache(directory / "costs") if directory else None

    def find(self, part: str, device: str) -> Price | None:
        """The price of the part with this hash on the device of this identity; None where there is none to trust."""
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
        price = _price(fields)
        return price if price is not None and data == _text(key, price) else None

    def keep(self, part: str, device: str, price: Price) -> None:
        """Whole or not at all."""
        key = _key(part, device)
        data = _text(key, price)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            write_whole(self.folder / f"{key}.json", lambda stream: stream.write(data))
        except (OSError, UserError):
            return


def _key(part: str, device: str) -> str:
    return hashlib.sha256(json.dumps([FORMAT, part, device]).encode()).hexdigest()


def _text(key: str, price: Price) -> bytes:
    """The only bytes that a file of this key and price may have; the seal finds damage, it is no signature."""
    content = {"key": key, "ns": price.ns, "refusal": price.refusal[:LONGEST_REASON]}
    seal = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    return json.dumps({**content, "seal": seal}, indent=1).encode() + b"\n"


def _price(fields: object) -> Price | None:
    if not isinstance(fields, dict):
        return None
    ns, refusal = fields.get("ns"), fields.get("refusal")
    if type(ns) is not int or not isinstance(refusal, str):
        return None
    sound = 0 <= ns <= LONGEST_NS or (ns == NOT_ACCEPTED and refusal)
    return Price(ns, refusal) if sound else None
