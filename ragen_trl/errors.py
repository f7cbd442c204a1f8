"""Mistakes that a user can correct. A command prints only their message; any other exception keeps its traceback."""


class UserError(Exception):
    """Base of every named error of this package; the message names the value and says what to do."""


class OptionError(UserError, ValueError):
    """An option does not exist, has a value that it cannot have, or does not go with another one."""


class NotFiniteError(UserError, ArithmeticError):
    """A return, a loss, a gradient or a sampled token's logits are NaN or infinite. No step was taken with them."""


class DiskError(UserError, OSError):
    """A file could not be written, because the disk is full or broken."""


REPEAT = "To go on, run the same command again."
"""What every command says that was stopped."""
