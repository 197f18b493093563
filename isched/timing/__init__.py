"""The cycle model: engines, memory ports and rendezvous in time; deadlocks, critical path, utilisation."""
