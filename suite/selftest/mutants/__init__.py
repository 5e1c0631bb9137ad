"""Mutation of the judges: how much of what a judge decides its own tests would notice if it were decided otherwise."""
