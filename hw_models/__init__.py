"""Chips as data: memories, engines, links and DMA of an accelerator, and what a piece of work costs on them."""
