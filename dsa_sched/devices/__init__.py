"""Devices that run parts of networks: one file per kind, with one protocol.

Scenario --open_devices--> devices --measured--> Problem with times that were taken on them
"""
