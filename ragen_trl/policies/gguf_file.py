r"""Models in GGUF files, the format of llama.cpp, as folders that ``from_pretrained``, PEFT and vLLM read.

Transformers reads such a file, but does not save what it has read, and does not train packed weights. So a file is
converted once, to float32. Where a file is given as a model's name, the folder is in the cache of Hugging Face's
libraries, under the hash of the file. The split of digits that SmolLM's vocabulary was made with is added, since
Transformers 5.23 leaves it out: without it ``"\n\n1."`` has tokens that the model never saw there.
"""

import hashlib
import json
import logging
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import torch
import transformers
from filelock import FileLock
from huggingface_hub import cached_assets_path
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import is_gguf_available

from ragen_trl.errors import UserError
from ragen_trl.system.atomic import fresh_partial, move_into_place

logger = logging.getLogger(__name__)

NOTE = "conversion.json"
"""The file of a converted folder that says which file it was made from."""
UNREADABLE = (ValueError, KeyError, IndexError, TypeError, OSError, RuntimeError, struct.error)
"""What Transformers and its reader raise for a file that is cut off, or that holds something else."""


class GGUFError(UserError, ValueError):
    """A GGUF file cannot be read, or its folder cannot be written."""


def is_gguf(name: str) -> bool:
    """Whether a model's name is a GGUF file's."""
    return name.lower().endswith(".gguf")


def model_source(name: str) -> dict[str, str]:
    """A model's name as the arguments of ``from_pretrained`` for what is in no weights: configuration, tokenizer.

    Raises `GGUFError` if it ends with ``.gguf`` and is no file, or the package ``gguf`` is missing.
    """
    path = Path(name).expanduser()
    if not is_gguf(name):
        return {"pretrained_model_name_or_path": str(path) if path.is_dir() else name}
    if not path.is_file():
        raise GGUFError(f"there is no file {str(path)!r}; check the path of the GGUF file")
    if not is_gguf_available():
        raise GGUFError(f"reading {path.name} needs the package gguf; pip install -e '.[gguf]', or pip install gguf")
    return {"pretrained_model_name_or_path": str(path.parent), "gguf_file": path.name}


def model_folder(name: str, say: Callable[[str], None] = logger.info) -> str:
    """What ``from_pretrained`` loads for a model's name; a GGUF file is converted the first time (see `convert`).

    Processes that ask at the same time wait for one of them.
    """
    source = model_source(name)
    if not is_gguf(name):
        return source["pretrained_model_name_or_path"]
    file = Path(name).expanduser()
    folder = cached_assets_path("ragen_trl", "gguf", "models") / f"{file.stem}-{_sha256(file)[:12]}"
    with FileLock(f"{folder}.lock"):
        if not (folder / NOTE).is_file():
            say(f"converting {file}, once; the folder is {folder}")
            convert(file, folder)
    return str(folder)


def convert(file: Path, folder: Path, license_file: Path | None = None) -> bool:
    """Write the model in a GGUF file as a folder, whole: float32 weights, tokenizer, chat template, generation config.

    A folder that holds this conversion is left as it is. Returns whether anything was converted. The model's licence,
    if given, is copied to ``LICENSE``.

    Raises:
        GGUFError: If the file cannot be read, the package ``gguf`` is missing, or the folder holds something else.
    """
    source = model_source(str(file))
    if license_file is not None and not license_file.is_file():
        raise GGUFError(f"there is no file {str(license_file)!r}; give the model's licence, or leave it out")
    digest = _sha256(file)
    if converted_from(folder) == digest:
        return False
    check_target(folder)
    try:
        partial = fresh_partial(folder)
    except OSError as error:
        raise GGUFError(f"{folder} cannot be made ({error.strerror}); name another folder") from error
    try:
        about = _unpack(file, source, partial)
        if license_file is not None:
            shutil.copyfile(license_file, partial / "LICENSE")
        note = {"file": file.name, "sha256": digest, **about, "transformers": transformers.__version__}
        (partial / NOTE).write_text(json.dumps(note, indent=2), encoding="utf-8")
        if folder.exists():
            folder.rmdir()  # empty, unless something has come there since
        move_into_place(folder)
    except BaseException:  # Ctrl-C as well
        shutil.rmtree(partial, ignore_errors=True)
        raise
    return True


def converted_from(folder: Path) -> str | None:
    """The SHA-256 of the file that a folder was converted from; ``None`` if it holds no conversion."""
    try:
        return str(json.loads((folder / NOTE).read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def check_target(folder: Path) -> None:
    """Raise `GGUFError` for a place that holds something, which a conversion would replace."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GGUFError(f"{folder} holds something else, so it is not replaced; name another folder, or delete it")


def unreadable(file: Path, error: Exception) -> GGUFError:
    """What to raise instead of an error of ``UNREADABLE``."""
    return GGUFError(
        f"{file} cannot be read as a language model; get it again if {file.stat().st_size:,} bytes are not the whole "
        "file, or take a model that Transformers reads from GGUF (Llama, Qwen2, Qwen3, …). The reader said: "
        f"{(str(error) or repr(error)).splitlines()[0]}"
    )


def _unpack(file: Path, source: dict[str, str], folder: Path) -> dict[str, str]:
    """Save the model with plain weights and its tokenizer; returns what the file says of itself."""
    from gguf import GGUFReader  # an optional dependency
    from transformers import GgufConfig  # since Transformers 5.23

    plain = {"dtype": torch.float32, "quantization_config": GgufConfig(dequantize=True), "output_loading_info": True}
    try:
        fields = GGUFReader(file).fields
        tokenizer = AutoTokenizer.from_pretrained(**source)
        model, found = AutoModelForCausalLM.from_pretrained(**source, **plain)
    except UNREADABLE as error:
        raise unreadable(file, error) from error
    if found["missing_keys"]:
        raise GGUFError(
            f"{file} lacks weights of its model ({', '.join(sorted(found['missing_keys'])[:3])}, …); get it again, or "
            "take a file with the whole model in one part"
        )
    if "tokenizer.ggml.pre" in fields and fields["tokenizer.ggml.pre"].contents() == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    tokenizer.model_max_length = model.config.get_text_config().max_position_embeddings
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return {"license": fields["general.license"].contents()} if "general.license" in fields else {}


def _sha256(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
