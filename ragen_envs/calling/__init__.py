"""Calling tools: environments whose actions are calls of functions, and the turns in which a model makes them.

`schema` makes and checks JSON schemas, `tool` is one function, `formats` reads and writes calls as chat templates do,
`env` is the base class of environments with tools, `turns` is the wrapper for a model, `mcp` connects to a server of
the Model Context Protocol. May be imported by `tools` and by what is above it. It imports `turns` and what is below.
"""

from ragen_envs.calling.env import ToolEnv
from ragen_envs.calling.formats import CALL_FORMATS, CallFormat
from ragen_envs.calling.mcp import McpTools
from ragen_envs.calling.tool import Tool
from ragen_envs.calling.turns import ToolTurns

__all__ = ["CALL_FORMATS", "CallFormat", "McpTools", "Tool", "ToolEnv", "ToolTurns"]
