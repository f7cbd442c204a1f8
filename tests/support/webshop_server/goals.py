"""What tests ask of goals."""

from webshop_server.goals.goals import Goal


def values_of(goal: Goal) -> tuple[str, ...]:
    """The option values that a goal asks for, whether it names the options or not."""
    return goal.options if isinstance(goal.options, tuple) else tuple(goal.options.values())
