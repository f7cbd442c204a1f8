"""The base of all errors that an environment's user can mend."""


class EnvError(Exception):
    """An environment cannot be made or played as asked; the message says why and what to do.

    Each kind has a class of its own, which is also one of Python's: `NoOracleError` is a `TypeError`.
    """
