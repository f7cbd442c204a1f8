"""Say clearly what is wrong with a model's name before a trainer trips over it."""

import json
from pathlib import Path

from peft import PeftModel
from transformers import AutoConfig, PreTrainedModel

from ragen_trl.errors import UserError


class ModelNotFoundError(UserError, FileNotFoundError):
    """A model's path or hub id names nothing that can be loaded."""


class NoReferenceError(UserError, ValueError):
    """TRL cannot load the reference model of its KL term."""


def check_policy(model: str | PreTrainedModel, beta: float | None) -> None:
    """Check what a trainer is given: a name that leads to a model, or a model that TRL can load once more if it must.

    Args:
        model: The policy.
        beta: KL coefficient, for which TRL loads a reference from the model's path; ``None`` if an adapter is trained.

    Raises:
        ModelNotFoundError: As ``check_model``.
        NoReferenceError: If there is no path.
    """
    if isinstance(model, str):
        check_model(model)
    elif beta and not isinstance(model, PeftModel) and not model.config.name_or_path:
        raise NoReferenceError(
            f"beta is {beta}, for which TRL loads a reference model from the policy's path, but this one was built in "
            "memory; save it with its tokenizer and pass the folder, or set beta=0"
        )


def check_model(name: str) -> None:
    """Check that a path or hub id leads to a model.

    Raises:
        ModelNotFoundError: If it does not; the message carries the name and the remedy.
    """
    folder = Path(name).expanduser()
    adapter = folder / "adapter_config.json"
    if adapter.is_file():  # LoRA weights: the model they belong to has to be there as well
        return check_model(json.loads(adapter.read_text(encoding="utf-8"))["base_model_name_or_path"])
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelNotFoundError(
            f"{name!r} is a folder without config.json or adapter_config.json, so not a saved model; give the folder "
            "that save_pretrained or the trainer wrote"
        )
    beside_one = "/" in name and Path(name).parts[0] in {path.name for path in Path().iterdir() if path.is_dir()}
    looks_local = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or beside_one
    if looks_local and not folder.is_dir():
        raise ModelNotFoundError(f"there is no folder {name!r}; give a saved model's folder or a hub id (owner/name)")
    try:
        AutoConfig.from_pretrained(str(folder) if folder.is_dir() else name)
    except (OSError, ValueError) as error:
        raise ModelNotFoundError(
            f"{name!r} is neither a folder here nor a model that could be loaded from the hub "
            f"({str(error).splitlines()[0]}); check the spelling and the connection"
        ) from error
