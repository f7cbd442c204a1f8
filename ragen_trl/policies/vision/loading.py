"""What a trainer or an evaluation needs of a model on this machine, whether it sees or only reads."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from peft import PeftConfig
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.policies.model_support import UnsupportedModelError, check_policy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vision.policy import VisionPolicy
from ragen_trl.policies.vision.processing import PictureProcessor, load_processor

if TYPE_CHECKING:
    from ragen_trl.rollout.chat import Chat


def check_named_policy(model: str | None, args: StarPOConfig, adapter: PeftConfig | None) -> None:
    """As `check_policy`, for a command's ``--model``; ``None`` is the embedded model, which reads text."""
    if model is not None:
        check_policy(model, args, adapter)
    elif args.observation == "image":
        raise UnsupportedModelError(
            "observation is 'image', but the embedded model reads text; give a Qwen2.5-VL or a Qwen3-VL by --model"
        )


def picture_processor(
    model: str | PreTrainedModel, args: StarPOConfig, processing_class: Any
) -> tuple[PictureProcessor | None, PreTrainedTokenizerBase | None]:
    """The picture processor of a run and its tokenizer; with text, ``None`` and ``processing_class`` as given."""
    if args.observation == "text":
        return None, processing_class
    given = args.model_init_kwargs if isinstance(args.model_init_kwargs, dict) else {}
    options = {name: given[name] for name in ("revision", "trust_remote_code") if name in given}
    config = AutoConfig.from_pretrained(model, **options) if isinstance(model, str) else model.config
    return load_processor(model, config, processing_class, options)


def local_policy(
    model: PreTrainedModel,
    chat: "Chat",
    sampling: Sampling,
    autocast: Callable[[], AbstractContextManager[object]],
    pictures: PictureProcessor | None,
    merge_lora: bool = False,
) -> TransformersPolicy:
    """The policy of a model in this process; one that sees, with a picture processor."""
    if pictures is None:
        return TransformersPolicy(model, chat, sampling, autocast, merge_lora)
    return VisionPolicy(model, chat, sampling, pictures, autocast, merge_lora)
