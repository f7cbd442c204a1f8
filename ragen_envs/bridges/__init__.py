"""The environments of this package in others, and those of others here, by their own interfaces.

A module for each package: `trl_tools` (outwards only), `openenv`, `gem`, `verifiers` (with `verifiers_rollout`), and
`tau2` (inwards only). `making` is what the bridges outwards have in common, `foreign` what those inwards do. Other
packages are imported when they are first needed. May be imported by `cli`. It imports anything else of this package.
"""

from ragen_envs.bridges.foreign import ForeignEnvError
from ragen_envs.bridges.gem import GemEnvironment, GemText
from ragen_envs.bridges.openenv import OpenEnvText, OpenEnvTools, openenv_environment
from ragen_envs.bridges.tau2 import Tau2
from ragen_envs.bridges.trl_tools import ToolEnvironment, trl_environment
from ragen_envs.bridges.verifiers import VerifiersText, VerifiersTools, verifiers_environment

__all__ = [
    "ForeignEnvError",
    "GemEnvironment",
    "GemText",
    "OpenEnvText",
    "OpenEnvTools",
    "Tau2",
    "ToolEnvironment",
    "VerifiersText",
    "VerifiersTools",
    "openenv_environment",
    "trl_environment",
    "verifiers_environment",
]
