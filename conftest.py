"""Loads rankproof's pytest plugin."""

pytest_plugins = ["fixtures.plugin"]
