"""PTX text as data: reading it, its control flow, and checks that need no run."""
