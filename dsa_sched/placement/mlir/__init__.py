"""Placement in MLIR: the `dsa` dialect, its passes, and the ways in and out.

    Problem --module_of--> dsa.device, dsa.link, dsa.graph --passes--> dsa.group, dsa.schedule --schedule_of--> Schedule

xDSL has the dialect; `mlir-opt` reads its generic form.
"""
