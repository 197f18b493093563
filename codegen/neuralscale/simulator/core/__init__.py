"""One core: registers, decoded code, the compiled loop of scalar instructions, operands of NPU instructions."""
