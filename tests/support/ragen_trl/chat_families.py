"""Small offline tokenizers that wear the special tokens and the chat templates of well-known model families.

The vocabularies are 256 bytes and the special tokens; what is tested is how a template's text becomes tokens, and that
does not depend on the learnt merges. Template texts come from TRL where it ships them.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast
from trl import chat_template_utils as trl_templates

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Adds its own system message, as SmolLM2-Instruct does.
SMOLLM2 = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# A system message that travels to the last user message (Mistral does so), a turn counter (ChatGLM), dropped thoughts.
TRAVELLING_SYSTEM = (
    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\n' %}"
    "{% set rest = messages[1:] %}{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}"
    "{% for message in rest %}<|im_start|>{{ message['role'] }}\n{% if message['role'] == 'user' and "
    "rest[loop.index0 + 1:] | selectattr('role', 'equalto', 'user') | list | length == 0 %}{{ system }}{% endif %}"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COUNTING_TURNS = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }} {{ loop.index }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Family:
    """A family's template and special tokens."""

    template: str
    specials: tuple[str, ...]
    end_of_turn: str  # closes a reply
    eos: str  # the tokenizer's own, which need not be the end of a turn
    bos: str | None = None

    def tokenizer(self) -> PreTrainedTokenizerFast:
        """Builds the tokenizer; it has ``<think>`` and ``</think>`` as ordinary added tokens, as Qwen3 does."""
        return byte_tokenizer(self.template, self.specials, self.eos, self.bos)


def byte_tokenizer(
    template: str | None, specials: tuple[str, ...], eos: str, bos: str | None = None
) -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes and these special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    size = len(alphabet) + len(specials)
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=list(specials), initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator([], trainer)
    tokenizer.add_tokens([AddedToken(tag, normalized=False) for tag in ("<think>", "</think>")])
    if bos is not None:  # as Llama-3's and Gemma's tokenizers: they add it to any text unless told not to
        ids = [(bos, tokenizer.token_to_id(bos))]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=ids)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=eos, bos_token=bos, chat_template=template)


CHATML_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_LLAMA_TOKENS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")


def _chatml(template: str) -> Family:
    return Family(template, CHATML_TOKENS, "<|im_end|>", eos="<|im_end|>")


FAMILIES: dict[str, Family] = {
    "qwen2_5": _chatml(trl_templates.qwen2_5_chat_template),
    "qwen3": _chatml(trl_templates.qwen3_chat_template),
    "qwen3_instruct": _chatml(trl_templates.qwen3_instruct_2507_chat_template),
    "chatml": _chatml(CHATML),
    "smollm2": _chatml(SMOLLM2),
    "llama3": Family(
        trl_templates.llama3_chat_template, _LLAMA_TOKENS, "<|eot_id|>", eos="<|eot_id|>", bos="<|begin_of_text|>"
    ),
    # The next two end a turn with a token that is none of the tokenizer's named special tokens.
    "gemma": Family(
        trl_templates.gemma_chat_template,
        ("<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>"),
        "<end_of_turn>",
        eos="<eos>",
        bos="<bos>",
    ),
    "phi3": Family(
        trl_templates.phi3_chat_template,
        ("<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"),
        "<|end|>",
        eos="<|endoftext|>",
    ),
}


def bundled_templates() -> list[str]:
    """Names of the chat templates that TRL ships, without its training versions of them."""
    return sorted(path.stem for path in _FOLDER.glob("*.jinja") if not path.stem.endswith("_training"))


def bundled_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """A tokenizer with a template that TRL ships, and with the control tokens that the template's text names."""
    template = (_FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    specials = sorted(set(_CONTROL.findall(template)) | {"<eos>"})
    tokenizer = byte_tokenizer(template, tuple(specials), "<eos>")
    tokenizer.bos_token = "<bos>" if "<bos>" in specials else "<eos>"  # some templates write it by its name
    return tokenizer


def control_counts(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> Counter[str]:
    """How often each added token occurs."""
    added = tokenizer.added_tokens_decoder
    return Counter(added[token].content for token in ids if token in added)


_FOLDER = Path(trl_templates.__file__).parent / "chat_templates"
_CONTROL = re.compile(r"<\|[\w/]+\|?>|<\w+\|>|<｜[^>｜]+｜>|<(?:start|end)_of_\w+>|<bos>|</s>|\[gMASK\]|<sop>")
