"""From a layout to per-core instruction streams with addresses: lowering, hazards, timing, scheduling, verification."""
