"""What every run loads: the conformance plugin, which checks each claim where it is written."""

from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.conformance.plugin"]

# A busy machine is no defect of the code; how long something takes is measured by benchmarks.
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")
