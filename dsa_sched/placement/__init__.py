"""Scheduling above the kernel: which task of a network runs on which device and stream, and when.

    model.onnx --task_graph--> TaskGraph --devices price it--> Problem --a method--> Schedule --run_time--> results

Methods (IOS, DUET, SPHINX, list scheduling, exact) have one signature (`methods/registry.py`), and one simulator
(`schedule/simulate.py`) judges their results. docs/placement.md is the manual.
"""
