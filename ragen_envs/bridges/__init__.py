"""The environments of this package in others, and those of others here, by their own interfaces.

A module for each package: `openenv` (both ways), `tau2` (inwards) and `trl_tools` (outwards). Other packages are
imported when they are first needed.
"""

from ragen_envs.bridges.openenv import OpenEnvText, openenv_environment
from ragen_envs.bridges.tau2 import Tau2
from ragen_envs.bridges.trl_tools import ToolEnvironment, trl_environment

__all__ = ["OpenEnvText", "Tau2", "ToolEnvironment", "openenv_environment", "trl_environment"]
