"""What every run loads: the conformance plugin, which checks each claim where it is written."""

pytest_plugins = ["tests.conformance.plugin"]
