"""Calling tools: environments whose actions are calls of functions, and the turns in which a model makes them.

`tool` is one function with its JSON schema, `env` the base class of environments with tools, `turns` the wrapper for a
model, which reads and writes calls as chat templates do, and `mcp` connects to a server of the Model Context Protocol.
"""

from ragen_envs.calling.env import ToolEnv
from ragen_envs.calling.mcp import McpTools
from ragen_envs.calling.tool import Tool
from ragen_envs.calling.turns import CALL_FORMATS, CallFormat, ToolTurns

__all__ = ["CALL_FORMATS", "CallFormat", "McpTools", "Tool", "ToolEnv", "ToolTurns"]
