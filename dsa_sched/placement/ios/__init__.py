"""IOS: dynamic programming over the stages of a network on one machine with several streams.

    Problem --blocks--> parts of at most 50 tasks --space--> states and endings --costs--> prices --best--> stages

Source: Ding, Zhu, Jia, Pekhimenko, Han, "IOS: Inter-Operator Scheduler for CNN Acceleration", MLSys 2021. The methods
are in `methods.py`, the search for any cost source in `search.py`; the paper's networks are in `benchmarks/lab/ios/`.
"""
