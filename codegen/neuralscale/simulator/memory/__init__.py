"""Memories with their checks: ranges, bytes not yet written, transfers in flight, and faults."""
