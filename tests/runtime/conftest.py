"""Property tests of this folder."""

from __future__ import annotations

from hypothesis import settings

# A shared core may pause for longer than hypothesis' 200 ms; a slow example says nothing about the code.
settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
