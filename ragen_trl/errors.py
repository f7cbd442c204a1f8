"""The mistakes a user can mend. A command answers them with their message alone; anything else keeps its trace."""


class UserError(Exception):
    """Base of every named error of this package; the message carries the value and the remedy."""
