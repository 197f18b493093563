"""The target of Gemmini, a systolic array with its own memories next to a RISC-V core."""
