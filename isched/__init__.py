"""From a plan to per-core instruction streams with addresses: tiling, allocation, ordering, verification."""
