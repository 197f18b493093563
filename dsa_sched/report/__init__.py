"""Tables for people and JSON for programs."""
