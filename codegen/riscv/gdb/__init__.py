"""GDB's remote protocol, for simulators of RISC-V cores: packets, a server, descriptions of registers."""
