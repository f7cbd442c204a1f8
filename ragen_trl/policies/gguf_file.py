r"""Models in GGUF files, the format of llama.cpp, as folders that ``from_pretrained``, PEFT and vLLM read.

Transformers reads such a file, but does not save what it has read, and does not train packed weights. So a file is
converted once, to float32. The split of digits that SmolLM's vocabulary was made with is added, since Transformers
5.23 leaves it out: without it ``"\n\n1."`` has tokens that the model never saw there.
"""

import hashlib
import json
import shutil
import struct
from pathlib import Path

import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import is_gguf_available

from ragen_trl.errors import UserError
from ragen_trl.system.atomic import fresh_partial, move_into_place

NOTE = "conversion.json"  # of a converted folder: which file it was made from
# What Transformers and its reader raise for a file that is cut off, or that holds something else.
_UNREADABLE = (ValueError, KeyError, IndexError, TypeError, OSError, RuntimeError, struct.error)


class GGUFError(UserError, ValueError):
    """A GGUF file cannot be read, or its folder cannot be written."""


def convert(file: Path, folder: Path, license_file: Path | None = None) -> bool:
    """Write the model in a GGUF file as a folder, whole: float32 weights, tokenizer, chat template, generation config.

    A folder that holds this conversion is left as it is. Returns whether anything was converted. The model's licence,
    if given, is copied to ``LICENSE``. `GGUFError` if the file cannot be read, or the package ``gguf`` is missing.
    """
    for path in (file, license_file):
        if path is not None and not path.is_file():
            raise GGUFError(f"there is no file {str(path)!r}; check the path")
    if not is_gguf_available():
        raise GGUFError(f"reading {file.name} needs the package gguf; pip install -e '.[gguf]', or pip install gguf")
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if holds_conversion(folder, digest):
        return False
    partial = fresh_partial(folder)
    try:
        about = _unpack(file, partial)
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


def holds_conversion(folder: Path, digest: str) -> bool:
    """Whether a folder was converted from the file of this SHA-256; `GGUFError` if it holds something else."""
    note = folder / NOTE
    if note.is_file() and f'"{digest}"' in note.read_text(encoding="utf-8"):
        return True
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise GGUFError(f"{folder} holds something else, so it is not replaced; name another folder, or delete it")
    return False


def _unpack(file: Path, folder: Path) -> dict[str, str]:
    """Save the model with plain weights and its tokenizer; returns what the file says of itself."""
    from gguf import GGUFReader  # an optional dependency
    from transformers import GgufConfig  # since Transformers 5.23

    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    plain = {"dtype": torch.float32, "quantization_config": GgufConfig(dequantize=True), "output_loading_info": True}
    try:
        fields = GGUFReader(file).fields
        tokenizer = AutoTokenizer.from_pretrained(**source)
        model, found = AutoModelForCausalLM.from_pretrained(**source, **plain)
    except _UNREADABLE as error:
        raise GGUFError(
            f"{file} cannot be read as a language model; get it again if it is not whole, or take a model that "
            f"Transformers reads from GGUF (Llama, Qwen2, Qwen3, …). The reader said: {error!r}"
        ) from error
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
