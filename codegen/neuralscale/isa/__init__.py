"""The instruction set as tables: scalar, custom NPU and control-register rows, and their page in the documentation."""
