"""Hypothesis in all unit tests: no time limit for an example, because the machine may be busy with other things."""

import os

from hypothesis import HealthCheck, settings

settings.register_profile("offsetzero", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("nightly", settings.get_profile("offsetzero"), max_examples=10_000)
settings.load_profile(os.environ.get("OZ_TEST_PROFILE", "offsetzero"))
