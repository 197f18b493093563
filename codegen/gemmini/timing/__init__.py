"""Times: what issuing a program costs, and what its machine code means, for the cycle model."""
