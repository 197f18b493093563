"""A network run launch by launch: what each group leaves in memory is read as it is left.

    Network(folder, WatchedDriver(driver, launches, seen)).run(inputs)   seen(group) after the last launch of each

So the program that is shipped is judged, in which values share memory. The driver stands between the runner and the
machine, and knows the arena as the first memory that the runner asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from codegen.cutlass.runner.runner import Dim3, Driver

__all__ = ["WatchedDriver"]


class WatchedDriver:
    """A `Driver` that passes everything on. `groups` names the group of each launch, in order."""

    def __init__(self, driver: Driver, groups: Sequence[str], seen: Callable[[str], None]) -> None:
        self._driver = driver
        self._groups = groups
        self._seen = seen
        self._launched = 0
        self._arena: int | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def allocate(self, size_bytes: int) -> int:
        found = self._driver.allocate(size_bytes)
        if self._arena is None:
            self._arena = found
        return found

    def launch(
        self, function: object, grid: Dim3, block: Dim3, shared_bytes: int, parameters: bytes, stream: int
    ) -> None:
        """Launch, and after the last one of a group wait for it and say so."""
        self._driver.launch(function, grid, block, shared_bytes, parameters, stream)
        number = self._launched
        self._launched += 1
        if number + 1 == len(self._groups) or self._groups[number + 1] != self._groups[number]:
            self._driver.synchronize(stream)
            self._seen(self._groups[number])

    def content(self, offset: int, size_bytes: int, stream: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Bytes of the arena."""
        assert self._arena is not None
        found = np.empty(size_bytes, np.uint8)
        self._driver.copy_out(found, self._arena + offset, stream)
        self._driver.synchronize(stream)
        return found
