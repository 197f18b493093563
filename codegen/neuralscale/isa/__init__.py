"""The instruction set as tables: scalar, custom NPU and control-register rows."""
