"""Readers of text forms that no command reads back: they show that nothing is lost in writing."""
