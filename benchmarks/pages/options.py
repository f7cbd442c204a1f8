"""The table of TRL's options, made of the declaration by which a configuration refuses them."""

from dataclasses import MISSING, Field, fields
from typing import Any

from trl import GRPOConfig

from pages.markdown import head, row, text
from ragen_trl import StarPOConfig
from ragen_trl.config import trl_options


def trl_table() -> str:
    """The arguments of TRL's ``GRPOTrainer``, then every option of its ``GRPOConfig``."""
    arguments = [row((f"`{name}`", note)) for name, note in trl_options.ARGUMENTS.items()]
    arguments += [row((f"`{name}`", f"refused; {instead}")) for name, instead in trl_options.REFUSED_ARGUMENTS.items()]
    ours = {one.name: one for one in fields(StarPOConfig)}
    options = [row(_cells(one, ours[one.name])) for one in fields(GRPOConfig)]
    named = head(["argument of `GRPOTrainer`", "here"])
    return text([*named, *arguments, "", *head(["option", "TRL", "here", "standing", "note"]), *options])


def _cells(theirs: Field[Any], ours: Field[Any]) -> tuple[str, ...]:
    name = theirs.name
    known, mine = _shown(theirs), _shown(ours)
    return (f"`{name}`", known, "" if known == mine else mine, *_standing(name))


def _standing(name: str) -> tuple[str, str]:
    """What becomes of an option, and a remark on it."""
    if name in trl_options.REFUSED:
        return "refused", trl_options.REFUSED[name].instead
    if name in trl_options.NO_EFFECT:
        return "no effect", trl_options.NO_EFFECT[name]
    note = trl_options.NOTES.get(name, "")
    if name in trl_options.TRAINED:
        return "works", note
    return "vLLM" if name in trl_options.WITH_VLLM else "passed on", note


def _shown(option: Field[Any]) -> str:
    value = option.default if option.default_factory is MISSING else option.default_factory()
    return f"`{value!r}`"
