"""Devices that run parts of networks: one file a kind, behind one protocol.

Scenario --open_devices--> devices --measured--> Problem with times that were taken on them
"""
