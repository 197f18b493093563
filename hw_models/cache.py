"""Results that are kept in the user's cache folder, so that each is worked out once per machine.

    KEY, bytes  --Cache.of_user("zoo").keep-->  FOLDER/KEY: SHA-256 of the bytes, a newline, the bytes  --find-->  bytes

A key is a hash of everything that the result follows from. Any number of processes may use a folder: an entry appears
whole under its name or not at all. Nothing in an entry is unpickled or executed; one that is damaged counts as absent.
When a folder grows beyond its bound, the entries that were unused for longest go. A folder that cannot be written costs
the time of working things out again and nothing else.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hw_models.scratch import replace_file

MOST_BYTES = 4 << 30
"""Default bound of the size of one folder, in bytes."""


def cache_directory() -> Path | None:
    """The folder of all caches, $XDG_CACHE_HOME/dsa-sched or ~/.cache/dsa-sched; None without a home directory. As the
    XDG specification says, a relative XDG_CACHE_HOME counts as unset."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        return (chosen if chosen.is_absolute() else Path.home() / ".cache") / "dsa-sched"
    except RuntimeError:  # no home directory
        return None


def key_of(*parts: str) -> str:
    """A key for a result that follows from the texts `parts`."""
    return hashlib.sha256("".join(f"{len(part)} {part}" for part in parts).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Cache:
    """A folder of entries, `most_bytes` at most together; without a folder, nothing is kept."""

    folder: Path | None
    most_bytes: int = MOST_BYTES

    @staticmethod
    def of_user(name: str, most_bytes: int = MOST_BYTES) -> Cache:
        """The cache of that name in the user's cache folder."""
        directory = cache_directory()
        return Cache(directory and directory / name, most_bytes)

    def find(self, key: str) -> bytes | None:
        """The bytes that were kept under a key; None where there are none, or not those that were written."""
        if self.folder is None:
            return None
        path = self.folder / key
        with suppress(OSError):
            if path.stat().st_size <= self.most_bytes:
                head, _, data = path.read_bytes().partition(b"\n")
                if head == hashlib.sha256(data).hexdigest().encode():
                    with suppress(OSError):
                        os.utime(path)  # used now
                    return data
        return None

    def keep(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, and remove what was unused for longest where the folder grows beyond its bound."""
        if self.folder is None:
            return
        head = hashlib.sha256(data).hexdigest().encode() + b"\n"
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(self.folder / key, lambda stream: stream.writelines((head, data)))
            self._shrink(self.most_bytes)

    def size_bytes(self) -> int:
        """Size of all entries together."""
        return sum(size for _, size, _ in self._entries())

    def clear(self) -> None:
        """Remove all entries."""
        self._shrink(0)

    def _shrink(self, most_bytes: int) -> None:
        entries = self._entries()
        left = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if left <= most_bytes:
                return
            with suppress(OSError):  # another process may have removed it
                path.unlink()
            left -= size

    def _entries(self) -> list[tuple[int, int, Path]]:
        """(time of the last use in ns, size in bytes, path) of each entry."""
        found: list[tuple[int, int, Path]] = []
        with suppress(OSError), os.scandir(self.folder or "") as files:
            for file in files:
                with suppress(OSError):
                    if file.is_file(follow_symlinks=False) and not file.name.startswith("."):
                        status = file.stat(follow_symlinks=False)
                        found.append((status.st_mtime_ns, status.st_size, Path(file.path)))
        return found
