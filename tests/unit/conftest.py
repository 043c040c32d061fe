"""Hypothesis in all unit tests: no time limit for an example, because the machine may be busy with other things."""

from hypothesis import HealthCheck, settings

settings.register_profile("offsetzero", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("offsetzero")
