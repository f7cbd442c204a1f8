"""Mistakes that a user can correct. A command prints only their message; any other exception keeps its traceback."""


class UserError(Exception):
    """Base of every named error of this package; the message names the value and says what to do."""


class NotFiniteError(UserError, ArithmeticError):
    """A loss or a gradient is NaN or infinite. The step that it would have made was not taken."""
