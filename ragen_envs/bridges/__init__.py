"""The environments of this package in others, and those of others here, by their own interfaces.

A module for each package: `openenv` (both ways), `tau2` (inwards) and `trl_tools` (outwards). `foreign` is what the
environments of others have in common here. Other packages are imported when they are first needed.
"""

from ragen_envs.bridges.foreign import ForeignEnvError
from ragen_envs.bridges.openenv import OpenEnvText, OpenEnvTools, openenv_environment
from ragen_envs.bridges.tau2 import Tau2
from ragen_envs.bridges.trl_tools import ToolEnvironment, trl_environment

__all__ = [
    "ForeignEnvError",
    "OpenEnvText",
    "OpenEnvTools",
    "Tau2",
    "ToolEnvironment",
    "openenv_environment",
    "trl_environment",
]
