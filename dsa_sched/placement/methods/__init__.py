"""The methods (list scheduling, searches, SPHINX, DUET, exact) in one registry with one signature."""
