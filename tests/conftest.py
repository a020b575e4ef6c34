"""What every suite shares."""

from __future__ import annotations

import os

from hypothesis import settings

# The suite is a gate, so the same commit has the same answer. HYPOTHESIS_PROFILE=explore looks elsewhere each
# time; what it finds becomes an example.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
