"""Loads rankproof's pytest plugins."""

pytest_plugins = ["fixtures.plugin", "fixtures.benchmarks"]
