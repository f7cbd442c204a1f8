"""Tiny tokenizers of the kinds that language models have, with ``<s>``, ``</s>``, ``<unk>`` and one template."""

import json

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import ByT5Tokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

CONTROL = ("<unk>", "<s>", "</s>")
TEMPLATE = (
    "{% for message in messages %}<s>[{{ message['role'] }}] {{ message['content'] }}</s>\n{% endfor %}"
    "{% if add_generation_prompt %}<s>[assistant] {% endif %}"
)
_TEXTS = ["the shop sells a red shoe for $5 buy now user assistant [user] [assistant] price / s <>"] * 40


def llama_like() -> PreTrainedTokenizerFast:
    """Merges with byte fallback; a blank before the first word (Llama 2, Mistral)."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    strip = decoders.Strip(" ", 1, 0)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), strip])
    return _wrapped(_with_bytes(tokenizer))


def gemma_like() -> PreTrainedTokenizerFast:
    """Merges with byte fallback; blanks are replaced first."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return _wrapped(_with_bytes(tokenizer))


def unigram() -> PreTrainedTokenizerFast:
    """A Unigram vocabulary under NFKC, which spells ``</s>`` by its control token if it may (T5, XLM-R)."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=80, special_tokens=list(CONTROL), unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(_TEXTS, trainer)
    return _wrapped(tokenizer)


def word_piece() -> PreTrainedTokenizerFast:
    """Lower-case words and their parts (BERT)."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=list(CONTROL), show_progress=False)
    tokenizer.train_from_iterator(_TEXTS, trainer)
    return _wrapped(tokenizer)


def in_python() -> PreTrainedTokenizerBase:
    """Bytes, without a Rust backend."""
    tokenizer = ByT5Tokenizer(extra_ids=0)
    tokenizer.chat_template = TEMPLATE.replace("<s>", "")
    return tokenizer


KINDS = {maker.__name__: maker for maker in (llama_like, gemma_like, unigram, word_piece, in_python)}


def _wrapped(tokenizer: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=TEMPLATE
    )


def _with_bytes(tokenizer: Tokenizer) -> Tokenizer:
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=list(CONTROL), show_progress=False)
    tokenizer.train_from_iterator(_TEXTS, trainer)
    content = json.loads(tokenizer.to_str())
    vocabulary = content["model"]["vocab"]
    vocabulary.update({f"<0x{byte:02X}>": len(vocabulary) + byte for byte in range(256)})
    return Tokenizer.from_str(json.dumps(content))
