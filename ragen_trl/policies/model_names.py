"""Whether a name leads to a model: a folder, a hub id, a GGUF file, or an adapter with its base. Reads no weights."""

from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from transformers import AutoConfig, PretrainedConfig
from transformers.utils import CONFIG_NAME
from transformers.utils.hub import extract_commit_hash

from ragen_trl.config.recipes import base_model
from ragen_trl.errors import UserError
from ragen_trl.policies.adapters import is_adapter
from ragen_trl.policies.gguf_file import UNREADABLE, GGUFError, is_gguf, model_source, unreadable

_SMOLLM2 = "models/SmolLM2-135M-Instruct"  # where cli/convert.py puts it; it looks like a hub's id
_OURS = ("models", "runs")  # where the commands write by default; in a new place they are not there yet


class ModelNotFoundError(UserError, FileNotFoundError):
    """A model's path or hub id names nothing that can be loaded."""


def check_model(name: str, revision: str | None = None, trust_remote_code: bool = False) -> PretrainedConfig:
    """The configuration of the model that a name (folder, hub id, GGUF file) leads to; of an adapter, its base model's.

    Raises:
        ModelNotFoundError: If there is no such model.
        GGUFError: If a name that ends with ``.gguf`` is no such file, or the package ``gguf`` is missing.
    """
    check_folder(name)
    folder = Path(name).expanduser()
    if is_adapter(name):
        return _check_base(folder / "adapter_config.json")
    options = {"trust_remote_code": trust_remote_code} | ({} if revision is None else {"revision": revision})
    try:
        config: PretrainedConfig = AutoConfig.from_pretrained(**model_source(name), **options)
    except GGUFError:
        raise
    except UNREADABLE as error:
        if is_gguf(name):
            raise unreadable(folder, error) from error
        if not isinstance(error, (OSError, ValueError)):
            raise
        raise ModelNotFoundError(
            f"{name!r} is neither a folder here nor a model that could be loaded from the hub "
            f"({str(error).splitlines()[0]}); check the spelling and the connection"
        ) from error
    return config


def check_folder(name: str) -> None:
    """Raise `ModelNotFoundError` for a name that looks like a folder's and holds no model; asks no hub."""
    folder = Path(name).expanduser()
    if is_adapter(name):
        return
    if folder.is_dir() and not (folder / "config.json").is_file():
        saved = [folder / "model" / each for each in ("config.json", "adapter_config.json")]
        remedy = "give the folder that save_pretrained or the trainer wrote"
        if any(path.is_file() for path in saved):  # the folder of a run of `train`
            remedy = f"did you mean {str(Path(name) / 'model')!r}?"
        raise ModelNotFoundError(
            f"{name!r} is a folder without config.json or adapter_config.json, so it is not a saved model; {remedy}"
        )
    here = {path.name for path in Path().iterdir() if path.is_dir()}
    beside_one = "/" in name and Path(name).parts[0] in {*_OURS, *here}
    if name == _SMOLLM2 and not folder.is_dir():
        raise ModelNotFoundError(f"there is no folder {name!r}; make smollm2 makes it, without a hub")
    looks_local = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") > 1 or beside_one
    if looks_local and not folder.is_dir() and not is_gguf(name):
        raise ModelNotFoundError(f"there is no folder {name!r}; give a saved model's folder or a hub id (owner/name)")


def _check_base(adapter: Path) -> PretrainedConfig:
    base = base_model(str(adapter.parent))
    if base is None:
        raise ModelNotFoundError(f"{adapter} names no model; write its folder or hub id into base_model_name_or_path")
    try:
        return check_model(base)
    except ModelNotFoundError as error:
        message = f"{str(adapter.parent)!r} is an adapter of {base!r}, which cannot be loaded from here: {error}"
        raise ModelNotFoundError(f"{message}. If it has moved, write its place into {adapter}") from error


def commit_of(name: str) -> str | None:
    """The hub's commit of a model whose configuration is in the local cache; ``None`` if it is not."""
    found = try_to_load_from_cache(name, CONFIG_NAME)
    return extract_commit_hash(found if isinstance(found, str) else None, None)
