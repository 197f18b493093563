"""One setting for all property tests: the same examples every time, so that a red run is red for everybody.

Look for new examples with `python -m pytest --hypothesis-profile=explore`.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, derandomize=False)
settings.load_profile("repeatable")
