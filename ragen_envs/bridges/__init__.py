"""The environments of this package in others, and those of others here, by their own interfaces.

A module for each package: `openenv` (both ways), `tau2` (inwards) and `trl_tools` (outwards). Other packages are
imported when they are first needed.
"""
