"""Which options each advantage and each loss reads. Others would have no effect, and are refused where they are set."""

from collections.abc import Mapping
from typing import Any

from ragen_trl.config.critic import CriticOptions
from ragen_trl.config.play import option_names
from ragen_trl.errors import OptionError

_OF_A_CRITIC = option_names(CriticOptions)
READ_BY_ADVANTAGE: dict[str, tuple[str, ...]] = {
    "group": ("baseline", "scale_rewards"),
    "gae": ("gamma", "gae_lambda", *_OF_A_CRITIC),
    "turn_gae": ("turn_gamma", "turn_lambda", *_OF_A_CRITIC),
    "bi_level_gae": ("gamma", "gae_lambda", "turn_gamma", *_OF_A_CRITIC),
    "gigpo": ("turn_gamma", "step_weight", "scale_rewards"),
    "mt_grpo": ("step_weight",),
}
ADVANTAGES = tuple(READ_BY_ADVANTAGE)
CRITIC_ADVANTAGES = tuple(name for name, read in READ_BY_ADVANTAGE.items() if "critic_learning_rate" in read)
_CLIP = ("epsilon", "epsilon_high", "delta")
READ_BY_LOSS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("grpo", "dapo", "dr_grpo"), _CLIP),
    "cispo": ("epsilon_high",),
}


def unread(read: Mapping[str, tuple[str, ...]], chosen: str) -> list[str]:
    """Options of a table that the chosen row does not have; all of them if there is no such row."""
    return sorted({name for names in read.values() for name in names} - set(read.get(chosen, ())))


def check_read(args: Any) -> None:
    """Raise `OptionError` for an option that differs from the default of its class and that nothing reads.

    ``None`` for an option of a loss says that it has none, and is always taken.
    """
    for kind, read in (("advantage", READ_BY_ADVANTAGE), ("loss_type", READ_BY_LOSS)):
        chosen = getattr(args, kind)
        for name in unread(read, chosen):
            value, default = getattr(args, name), getattr(type(args), name)
            if value != default and (value is not None or kind == "advantage"):
                not_read = f"which {kind} {chosen!r} does not read"
                raise OptionError(f"{name} is {value!r}, {not_read}; leave it at {default!r}")
