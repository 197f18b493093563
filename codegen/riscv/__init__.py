"""What targets with RISC-V cores share: rows, encoding and text of instructions, and ELF files."""
