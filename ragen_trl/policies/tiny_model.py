"""A small Qwen2 and its tokenizer, built here so nothing has to be downloaded; the same seed gives the same bytes.

The tokenizer is byte-level. It is made for short contexts and clear maps: a line of words that the environments repeat
("Actions left: 8") is one token, and so is every symbol of a grid row, so a place on the map is a place in the
sequence.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any

import gymnasium
import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from ragen_envs import AgentTurns, NoOracleError, ToolEnv, ToolTurns, plan, random_action
from ragen_trl.config.options import ExecutionOptions
from ragen_trl.config.recipes import played
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.rollout.env_executor import EnvExecutor
from ragen_trl.rollout.interfaces import Start, TurnEnv
from ragen_trl.rollout.loop import EnvResetError, play
from ragen_trl.rollout.seeds import WARM_START

END_OF_TURN, PADDING = "<|im_end|>", "<|endoftext|>"

# Like Qwen's: header, content, end-of-turn; it only appends. Of tools only names and arguments are shown: a description
# would fill the context, and a model that begins with random weights has to learn what a tool does in any case.
CHAT_TEMPLATE = (
    "{%- if tools -%}{{- '<|im_start|>tools\n' -}}"
    "{%- for tool in tools -%}"
    "{{- tool.function.name + '(' + tool.function.parameters.properties | join(', ') + ')\n' -}}"
    "{%- endfor -%}{{- '<|im_end|>\n' -}}{%- endif -%}"
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\n' + message['content'] -}}"
    "{%- for call in message.tool_calls or [] -%}"
    '{{- \'<tool_call>\n{"name": "\' + call.function.name + \'", "arguments": \' -}}'
    "{{- call.function.arguments | tojson + '}\n</tool_call>' -}}"
    "{%- endfor -%}{{- '<|im_end|>\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\n' -}}{%- endif -%}"
)

# Each of these is a separate piece: a tag, the action separator, a digit, a newline, a grid symbol. A capital letter
# is a grid symbol unless it starts a word ("G" in "_G__", not in "Good").
_SPLIT = Regex(r"</?[a-z]+>|\|\||[0-9]|\n|[_#√.@]|[A-Z](?![a-z])|\s?[A-Za-z]+|\s?[^A-Za-z0-9\s]+|\s+")
_TAGS = ("<think>", "</think>", "<answer>", "</answer>")
# A fixed list, not Gymnasium's registry: an environment that a user registers must not change the tokenizer.
_CORPUS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ragen/Bandit-v0", played("ragen/Bandit-v0", True)),
    ("ragen/BanditRev-v0", played("ragen/BanditRev-v0", True)),
    ("ragen/FrozenLake-v0", {}),
    ("ragen/FrozenLake-v0", played("ragen/FrozenLake-v0", True)),
)
_MIN_REPEATS = 12  # a line this frequent in the corpus becomes a token
# In the shops an identifier is one token, so a reply can copy it in one step. The rest of its line is one as well.
_PRODUCT_ID = re.compile(r"\bB0[A-Z0-9]{8}\b")
_PRODUCT = re.compile(r"^B0[A-Z0-9]{8}( \| .*\n)", re.MULTILINE)


def build_tiny_tokenizer(
    vocab_size: int = 2048,
    env: str | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    args: ExecutionOptions | None = None,
) -> PreTrainedTokenizerFast:
    """Learn a Qwen-style tokenizer from random play in FrozenLake, in the bandits and in one more environment.

    Args:
        vocab_size: Upper bound, without the tokens of whole lines; at least 300 (256 bytes and special tokens).
        env: Gymnasium id of the environment in which the model will play. It adds its own words and lines, and product
            identifiers as single tokens. FrozenLake, the bandits and ``None`` add nothing.
        env_kwargs: Keyword arguments of that environment.
        args: How that environment is stepped; `EnvResetError` if it exceeds the time limit.
    """
    tokenizer = Tokenizer(models.BPE())
    pieces = pre_tokenizers.Split(_SPLIT, behavior="isolated")
    in_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pieces, in_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[PADDING, "<|im_start|>", END_OF_TURN],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    common = [
        _episodes(name, {**settings, "think": think}, range(48), 1.0)
        for name, settings in _CORPUS
        for think in (False, True)
    ]
    texts = list(chain.from_iterable(chain.from_iterable(common)))
    own = _own_corpus(env, env_kwargs, args) if env is not None and env not in dict(_CORPUS) else []
    own_texts = list(chain.from_iterable(own))
    tokenizer.train_from_iterator([*texts, *own_texts], trainer)
    whole = ["system\n", "user\n", "assistant\n", *_TAGS, "√", *_frequent(map(_lines, texts))]
    for pattern in (_PRODUCT_ID, _PRODUCT):
        whole += sorted({found for text in own_texts for found in pattern.findall(text)})
    tools = _tools_of(env, env_kwargs) if own else ()
    # Lines that many episodes share, so none of a single task, and none that names a product.
    shared = _frequent({line for text in episode for line in _lines(text)} for episode in own)
    whole += _pieces_of_calls(tools) if tools else [line for line in shared if not _PRODUCT_ID.search(line)]
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in whole])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
        model_max_length=2048,
    )


def build_tiny_model(
    tokenizer: PreTrainedTokenizerFast,
    seed: int = 0,
    hidden_size: int = 96,
    num_layers: int = 4,
    num_heads: int = 4,
) -> Qwen2ForCausalLM:
    """Build a randomly initialised Qwen2 of about 0.3 to 1 M parameters, float32, in evaluation mode.

    ``seed`` fixes the initial weights; the global torch generator does not change. The feed-forward layer is three
    times as wide as ``hidden_size``, and all heads are key-value heads too.
    """
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        initializer_range=0.05,  # 0.02 suits widths in the thousands; here it leaves the first steps without gradient
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        ragen_embedded=True,  # saved with it, so that the commands recognise the model and choose its recipe
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would reseed accelerators as well
        model = Qwen2ForCausalLM(config)
    return model.eval()


def _own_corpus(env: str, env_kwargs: Mapping[str, Any] | None, args: ExecutionOptions | None) -> list[list[str]]:
    """Episodes in one environment. Half of the actions are the oracle's: random play seldom sees later states.

    Without an oracle, all of it is random play. Without random play too, the corpus is empty and words are spelled.
    """
    settings = {**played(env, True), **({"env_kwargs": dict(env_kwargs)} if env_kwargs else {})}
    seeds = range(WARM_START, WARM_START + 300)
    executor = EnvExecutor(args.env_workers, args.env_timeout) if args else None
    for noise in (0.5, 1.0):
        with suppress(NoOracleError):
            return _episodes(env, {**settings, "think": False}, seeds, noise, executor)
    return []


def _episodes(
    env: str, settings: dict[str, Any], seeds: Iterable[int], noise: float, executor: EnvExecutor | None = None
) -> list[list[str]]:
    """The messages and replies of each episode of a policy that plays at random with probability ``noise``."""
    options = dict(settings)
    env_kwargs: dict[str, Any] = options.pop("env_kwargs", {})
    made = gymnasium.make(env, disable_env_checker=True, **env_kwargs)
    kind = ToolTurns if isinstance(made.unwrapped, ToolEnv) else AgentTurns
    turns = kind(made, **options)

    def script(_: TurnEnv, random: np.random.Generator) -> str:
        length = int(random.integers(1, 4))
        if noise == 1.0:  # needs no oracle; may go on past the end, as a model does
            return turns.format_reply([random_action(turns, random) for _ in range(length)])
        return turns.format_reply(plan(turns, turns.actions_left, length, random, noise))

    texts = []
    for seed in seeds:
        (one,) = play([turns], ScriptedPolicy(script), [Start(seed, sampling_seed=seed)], executor=executor)
        if one.limit == "timeout":  # a thread is still inside it
            raise EnvResetError(f"{env} hangs at turn {len(one.turns)} after reset(seed={seed}): mend it (env_timeout)")
        texts.append([text for turn in one.turns for text in (turn.observation, turn.reply)])
    turns.close()
    return texts


def _tools_of(env: str | None, env_kwargs: Mapping[str, Any] | None) -> tuple[dict[str, Any], ...]:
    """Descriptions of all tools of an environment, whichever episodes have them; () if it has none."""
    made = gymnasium.make(str(env), disable_env_checker=True, **(env_kwargs or {}))
    found: dict[str, dict[str, Any]] = {}
    if isinstance(made.unwrapped, ToolEnv):
        for seed in range(WARM_START, WARM_START + 20):
            made.reset(seed=seed)
            found |= {tool["function"]["name"]: tool for tool in made.unwrapped.schemas}
    made.close()
    return tuple(found.values())


def _pieces_of_calls(tools: Iterable[Mapping[str, Any]]) -> list[str]:
    """What is the same in all calls of a tool, each as one token: its name, the names of its arguments, the brackets.

    So a call is hardly longer than its values, which are spelled in the same pieces as in tasks and results.
    """
    functions = [tool["function"] for tool in tools]
    arguments = sorted({name for each in functions for name in each["parameters"]["properties"]})
    lines = [f"{each['name']}({', '.join(each['parameters']['properties'])})\n" for each in functions]
    begins = [f'<tool_call>\n{{"name": "{each["name"]}", "arguments": {{' for each in functions]
    names = [f'{comma}"{name}": ' for name in arguments for comma in ("", ", ")]
    return [*lines, *begins, *names, "}}\n</tool_call>", "tools\n", "tool\n"]


def _frequent(found: Iterable[Iterable[str]]) -> list[str]:
    """The lines that occur often in all of these together."""
    counts = Counter(chain.from_iterable(found))
    return sorted(line for line, count in counts.items() if count >= _MIN_REPEATS)


def _lines(text: str) -> Iterator[str]:
    """Lines of words, newline included. Rows of a grid have no lower-case letters."""
    for line in text.splitlines(keepends=True):
        if any(map(str.islower, line)) and not line.startswith(_TAGS):
            yield line
