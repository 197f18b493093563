"""Machine code as text and as files: assembler, disassembler, ELF reader and writer."""
