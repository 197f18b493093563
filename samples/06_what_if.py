"""Compile, explain, time and verify a network, then ask what it would take on a chip with less local memory.

python samples/06_what_if.py [NETWORK or FILE.onnx] [CHIP]
"""

from __future__ import annotations

import sys

import dsa_sched

SIZES = {
    "as it is": {},
    "a sixteenth of the data in L1": {"memories.L1.size_bytes": 327_680, "memories.L1.buffers.data.size_bytes": 65_536},
}


def main(model: str = "mobilenet_v2-mini", name: str = "stcp920") -> None:
    for label, changes in SIZES.items():
        chip = dsa_sched.load_chip(name, changes)
        artifact = dsa_sched.compile(model, chip, level="O3")
        explained, timed = dsa_sched.explain(artifact), dsa_sched.time(artifact)
        verified = dsa_sched.verify(artifact)
        assert explained.cycles == timed.cycles == verified.cycles  # one program, one time
        binds, cycles = next(iter(timed.critical_cycles.items()))
        rate = f"{timed.items_per_second:,.0f} items/s" if timed.items_per_second else "no rate"
        print(f"{label}: {timed.cycles:,.0f} cycles, {rate}, {len(explained.groups)} groups, {verified.verdict}")
        print(f"  most of the critical path: {binds}, {cycles:,.0f} cycles; {verified.reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
