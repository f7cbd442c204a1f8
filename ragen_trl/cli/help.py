"""What ``--help`` of a command shows: examples, and this package's options in groups, without loading torch.

Importing the configurations takes seconds. The options are therefore read off the source of the dataclasses where these
import torch, and a test compares them with the classes. TRL's other options are behind ``--help trl``.
"""

import ast
import json
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

from ragen_trl.config import validation
from ragen_trl.config.commands import ApiArguments, EvaluationArguments, RunArguments, WarmStartArguments
from ragen_trl.config.critic import CriticOptions
from ragen_trl.config.play import ExecutionOptions, MannerOptions, PlayOptions, TaskOptions, option_names
from ragen_trl.config.presets import PRESETS
from ragen_trl.system.terminal import heading

_PACKAGE = Path(__file__).parents[1]
_TRAINING: tuple[type | tuple[str, str], ...] = (PlayOptions, ("config/starpo", "StarPOConfig"), CriticOptions)
_WARM_START = ("imitation/fine_tuning", "WarmStartConfig")
# Classes in the order of the page; if the module imports torch, as module and name. Of an option that several classes
# have, the first one counts.
_SOURCES: dict[str, tuple[type | tuple[str, str], ...]] = {
    "train": (RunArguments, _WARM_START, *_TRAINING, ("config/astar_po", "AStarPOConfig")),
    "warm-start": (WarmStartArguments, _WARM_START, *_TRAINING),
    "eval": (EvaluationArguments, ApiArguments, *_TRAINING),
}
_OF_TRAINING = {"PlayOptions", "CriticOptions", "StarPOConfig"}
_PLAY = [
    name
    for kind in (TaskOptions, MannerOptions, ExecutionOptions)
    for name in option_names(kind)
]
_TRAINED = "env algo preset model lora_r lora_alpha consistency_weight seed".split()
_EVALUATED = "eval_episodes episodes eval_env_kwargs samples_per_start eval_temperature side_by_side".split()
_RUN = "output_dir overwrite report_to monitor record_rollouts".split()
_USUAL = "max_steps learning_rate num_generations per_device_train_batch_size gradient_accumulation_steps".split()
_AT_A_TIME = "num_train_seeds train_seed_start num_processes use_vllm vllm_mode vllm_server_base_url".split()
# Options of TRL's and transformers' own that nearly every run sets.
_OF_TRL = {
    "seed": "Random seed of the weights, the start states and the sampling (default: 42).",
    "output_dir": "The folder (default: one under runs/, named after what is run).",
    "report_to": "Where metrics go besides the run folder: none, trackio, tensorboard or wandb (default: none).",
    "learning_rate": "Learning rate of the policy (default: 1e-06; 0.0005 for the embedded model).",
    "use_vllm": "Sample with vLLM (default: False).",
    "vllm_mode": "Where vLLM runs: colocate, on the GPUs that train, or server (default: colocate).",
    "vllm_server_base_url": "Address of trl vllm-serve, such as http://HOST:8000, for vllm_mode 'server'.",
    "gradient_checkpointing": "Recompute activations: less memory, more time (default: True; not the embedded model).",
}


@dataclass(frozen=True)
class Option:
    """An option as its dataclass defines it; ``default`` is ``None`` where it is unset or no plain value."""

    name: str
    kind: str
    default: str | None
    help: str


@dataclass(frozen=True)
class _Page:
    """What the help of one command says beside its options."""

    about: str
    examples: tuple[str, ...]
    groups: tuple[tuple[str, list[str]], ...]
    rest: str
    of_trl: tuple[str, ...]


_PAGES = {
    "train": _Page(
        "Warm-starts the embedded tiny model (or takes --model), evaluates it, trains it, evaluates it again and "
        "writes a report. After Ctrl-C or a crash, the same command goes on from where it stopped.",
        (
            "train",
            "train --env ragen/Bandit-v0 --algo starpo --max_steps 50",
            "train --model Qwen/Qwen2.5-0.5B-Instruct --lora_r 64 --learning_rate 1e-5 --dry-run",
            "train --preset starpo-s --env ragen/Sokoban-v0 --model Qwen/Qwen2.5-0.5B-Instruct",
            "train --config runs/frozenlake-starpo-s-seed42/config.yaml --seed 7 --output_dir runs/again",
        ),
        (
            ("what is trained", _TRAINED),
            ("how it plays", _PLAY),
            ("how long, how much at a time", [*_USUAL, *_AT_A_TIME]),
            ("how it is evaluated", _EVALUATED),
            ("where it goes, how it is monitored", _RUN),
            ("warm start of the embedded model", []),  # filled from its class
            ("only A*-PO (--algo a-star-po)", []),
        ),
        "algorithm",
        tuple(_OF_TRL),
    ),
    "warm-start": _Page(
        "Fine-tunes a model on noisy play of the oracle and saves it, for `train --model FOLDER`.",
        (
            "warm-start --env ragen/Sokoban-v0 --demonstrations 4000 --output_dir runs/start",
            "warm-start --model Qwen/Qwen2.5-0.5B-Instruct --env ragen/Bandit-v0 --demonstrations 500",
        ),
        (
            ("what is trained", ["env", "model", "seed"]),
            ("what it learns from", []),
            ("how it plays", _PLAY),
            ("where it goes", ["output_dir", "overwrite"]),
        ),
        "",
        ("seed", "output_dir"),
    ),
    "eval": _Page(
        "Success of a saved model, or one behind an API, on held-out start states, next to the random policy and the "
        "oracle. A saved model's play.json says which environment and limits it was trained with.",
        (
            "eval --model runs/frozenlake-starpo-s-seed42/model",
            "eval --model MODEL --env ragen/Sokoban-v0 'ragen/Sokoban-v0:{\"num_boxes\": 2}' --episodes 256",
            "eval --api_model NAME --api_base https://HOST/v1 --output_dir runs/api",
        ),
        (
            ("what is evaluated", ["model", "env", "suite", "env_kwargs", "algo", "use_vllm"]),
            ("how much of it", _EVALUATED),
            ("how it plays", [name for name in _PLAY if name != "env_kwargs"]),
            ("where it goes", _RUN),
        ),
        "a model behind an API",
        ("output_dir", "use_vllm"),
    ),
}
_GROUP_OF_CLASS = {
    ("train", "WarmStartConfig"): "warm start of the embedded model",
    ("train", "AStarPOConfig"): "only A*-PO (--algo a-star-po)",
    ("warm-start", "WarmStartConfig"): "what it learns from",
}


def help_page(command: str, width: int = 100) -> str:
    """The text of ``python -m ragen_trl COMMAND --help`` for "train", "warm-start" or "eval"."""
    page = _PAGES[command]
    lines = [f"usage: python -m ragen_trl {command} [--option value ...] [--config FILE.yaml] [--dry-run]", ""]
    lines += [*textwrap.wrap(page.about, width), "", heading("examples:")]
    lines += [f"  python -m ragen_trl {example}" for example in page.examples]
    for title, options in _grouped(command):
        lines += ["", heading(f"{title}:"), *(line for option in options for line in _entry(option, width))]
    lines += ["", heading("for every command:")]
    for name, text in _FOR_ALL:
        lines += _entry(Option(name, "", None, text), width)
    if command == "train":
        lines += ["", heading("presets (each value from the source that is named before it):"), *_presets(width)]
    lines += ["", *textwrap.wrap(_END, width)]
    return "\n".join(lines) + "\n"


def _presets(width: int) -> Iterator[str]:
    """Every preset with its sources, and what comes from each; an option is shown where its value comes from."""
    for name, preset in PRESETS.items():
        yield from textwrap.wrap(f"  {name}: {preset.about}", width, subsequent_indent="    ")
        for place, values in enumerate(preset.values):
            later = [other for other in preset.values[place + 1 :] if other.envs == values.envs]
            after = {option for other in later for option in other.options}
            left = [f"{option} {_plain(value)}" for option, value in values.options.items() if option not in after]
            where = f" ({', '.join(values.envs)})" if values.envs else ""
            lines = textwrap.wrap(f"{values.source}{where}: {', '.join(left)}", width - 6, break_on_hyphens=False)
            yield from (f"{'      ' if line else '    - '}{text}" for line, text in enumerate(lines) if left)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value) if isinstance(value, dict) else str(value)


_FOR_ALL = (
    ("config FILE", "YAML with lines 'option: value' that replace defaults; the command line overrides it."),
    ("dry-run", "Print what would be done (prompts, tokens; of train also memory, and where it goes on); do nothing."),
    ("help trl", "Several hundred options of TRL and transformers as well (also: --help_all)."),
)
_END = (
    "Defaults are those of the dataclasses; the embedded tiny model, warm starts of a pretrained model, some "
    "environments and a saved model's play.json have their own defaults, which --dry-run shows. Exit status: 0 done, 2 "
    "a mistake that you can correct, 130 stopped by Ctrl-C, 1 a fault of this package."
)


def options_of(command: str) -> list[tuple[str, Option]]:
    """Class name and option, for each option that this package adds to the command; each name once."""
    found: dict[str, tuple[str, Option]] = {}
    for source in _SOURCES[command]:
        if isinstance(source, type):
            name, options = source.__name__, _declared_options(source)
        else:
            name, options = source[1], _read_options(_PACKAGE / f"{source[0]}.py", source[1])
        for option in options:
            found.setdefault(option.name, (name, option))
    return list(found.values())


def _grouped(command: str) -> Iterator[tuple[str, list[Option]]]:
    page = _PAGES[command]
    own = options_of(command)
    known = {option.name: option for _, option in own}
    known |= {name: Option(name, "", None, _OF_TRL[name]) for name in page.of_trl if name not in known}
    left = dict(known)
    groups = []
    for title, names in page.groups:
        chosen = [left.pop(name) for name in names if name in left]
        groups.append((title, chosen))
    for source, option in own:
        title = _GROUP_OF_CLASS.get((command, source), "")
        if option.name in left and title:
            dict(groups)[title].append(left.pop(option.name))
    if page.rest and left:
        first = 2 if command == "train" else 1
        rest = [option for name, option in left.items() if _concerns(command, name, own)]
        rest.sort(key=lambda option: option.name != "advantage")  # first, as it decides which of the others are read
        groups.insert(first, (page.rest, rest))
    yield from (group for group in groups if group[1])


def _concerns(command: str, name: str, own: list[tuple[str, Option]]) -> bool:
    """Whether the page lists an option: evaluation accepts all training options, but reads few of them."""
    return command == "train" or any(source not in _OF_TRAINING and option.name == name for source, option in own)


def _entry(option: Option, width: int) -> list[str]:
    name = f"  --{option.name} {option.kind}".rstrip()
    default = "" if option.default is None else f" (default: {option.default})"
    text = textwrap.wrap(option.help + default, width - 32) or [""]
    first = [f"{name:<31} {text[0]}"] if len(name) < 31 else [name, " " * 32 + text[0]]
    return first + [" " * 32 + line for line in text[1:]]


def _declared_options(kind: Any) -> Iterator[Option]:
    for option in fields(kind):
        annotation = option.type.__name__ if isinstance(option.type, type) else str(option.type)
        kind_of_value = _KINDS.get(annotation.removesuffix(" | None"), "VALUE")
        yield Option(option.name, kind_of_value, _shown(option.default), option.metadata["help"])


def _read_options(path: Path, name: str) -> Iterator[Option]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    (found,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    for node in found.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Call):
            default, text = map(_value, node.value.args[:2])  # of `config.play.option`
            kind = _KINDS.get(ast.unparse(node.annotation).removesuffix(" | None"), "VALUE")
            yield Option(node.target.id, kind, _shown(default), text)


_KINDS = {
    "int": "N",
    "float": "X",
    "bool": "true|false",
    "str": "NAME",
    "list[str]": "NAME ...",
    "list[float]": "X ...",
}


def _shown(default: Any) -> str | None:
    """A default as it is shown; none for an unset option, whose help says what that means."""
    return None if default in (None, "", [], MISSING) else str(default)


def _value(node: ast.expr) -> Any:
    """The value of an expression in one of our dataclasses; ``None`` if it uses names of other things than choices."""
    try:
        return eval(compile(ast.Expression(node), "<option>", "eval"), dict(vars(validation)))
    except NameError:
        return None
