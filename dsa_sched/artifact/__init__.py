"""The output folder: its manifest, its contents, and running it on a runner."""
