"""The command `rankproof`; the suite itself lies in `rooms/` of an installed package, beside this one in a checkout."""
