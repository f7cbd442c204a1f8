"""Say clearly what is wrong with a model's name before a trainer trips over it."""

from pathlib import Path

from transformers import AutoConfig


class ModelNotFoundError(FileNotFoundError):
    """A model's path or hub id names nothing that can be loaded."""


def check_model(name: str) -> None:
    """Check that a path or hub id leads to a model.

    Raises:
        ModelNotFoundError: If it does not; the message carries the name and the remedy.
    """
    folder = Path(name).expanduser()
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelNotFoundError(
            f"{name!r} is a folder without config.json, so not a saved model; give the folder that save_pretrained "
            "or the trainer wrote"
        )
    if not folder.is_dir() and (folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1):
        raise ModelNotFoundError(f"there is no folder {name!r}; give a saved model's folder or a hub id (owner/name)")
    try:
        AutoConfig.from_pretrained(str(folder) if folder.is_dir() else name)
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"{name!r} is neither a folder here nor a model that could be loaded from the hub "
            f"({str(error).splitlines()[0]}); check the spelling and the connection"
        ) from error
