"""What a plan costs before it is lowered: bytes moved, floors, cycles, micro-batches."""
