"""The output folder: its manifest, what is in it, and running it on a runner."""
