"""The embedded model: same bytes everywhere, a tokenizer that loses nothing, and one token per place on the map."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast

from ragen_envs import AgentTurns
from ragen_envs.webshop import ToyShop
from ragen_trl.policies.tiny_model import CHAT_TEMPLATE, build_tiny_model, build_tiny_tokenizer, save_tiny_model
from ragen_trl.rollout.chat import Chat
from tests.support.ragen_trl.trainers import Lottery

TOKENIZER = build_tiny_tokenizer()  # hypothesis takes no fixtures

BUILD = "import sys; from ragen_trl.policies.tiny_model import save_tiny_model; save_tiny_model(sys.argv[1], seed=3)"


def digest(model: torch.nn.Module) -> str:
    weights = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return hashlib.sha256(weights).hexdigest()


def test_the_same_seed_gives_the_same_bytes_in_every_process(root: Path, tmp_path: Path) -> None:
    """In this process and in a new one, whose strings have other hashes."""
    env = {**os.environ, "PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", BUILD, str(tmp_path / "there")]
    subprocess.run(command, cwd=root, env=env, check=True, timeout=200)
    save_tiny_model(tmp_path / "here", seed=3)
    for name in ("tokenizer.json", "model.safetensors", "config.json"):
        assert (tmp_path / "here" / name).read_bytes() == (tmp_path / "there" / name).read_bytes(), name


def test_the_common_tokenizer_is_the_one_that_published_runs_were_made_with() -> None:
    """The vocabulary's numbers are rows of saved models: a change here makes every published figure another one."""
    text = TOKENIZER.backend_tokenizer.to_str()
    found = hashlib.sha256(text.encode()).hexdigest()
    assert found == "677bc28fd95f202bebd85a59393cbc1957b42622e5a829ea8d21da184d707e62"
    assert build_tiny_tokenizer(640, env="ragen/FrozenLake-v0").backend_tokenizer.to_str() == text


class Tickets(Lottery):
    """Nobody knows how to play it well."""

    instruction = "Scratch a silver lottery ticket.\nOr leave it."
    actions = ("scratch", "leave")


class Wishes(Tickets):
    """Nobody knows what to say at all."""

    actions = None  # type: ignore[assignment]


def test_an_environment_of_ones_own_adds_its_lines_and_without_known_actions_none() -> None:
    """Its oracle is not needed: random play shows the words as well."""
    line = "Scratch a silver lottery ticket.\n"
    for name, kind in (("own/Tickets-v0", Tickets), ("own/Wishes-v0", Wishes)):
        gymnasium.register(name, entry_point=kind, max_episode_steps=3)
    assert len(build_tiny_tokenizer(env="own/Tickets-v0")(line).input_ids) == 1
    alone = build_tiny_tokenizer(env="own/Wishes-v0")
    assert alone.backend_tokenizer.to_str() == TOKENIZER.backend_tokenizer.to_str()
    assert len(alone(line).input_ids) > 5


def test_weights_depend_on_the_seed(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    one, again, other = (digest(build_tiny_model(tiny_tokenizer, seed, 32, 1)) for seed in (0, 0, 1))
    assert one == again != other


def test_building_leaves_the_global_dice_alone(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    before = torch.get_rng_state()
    build_tiny_model(tiny_tokenizer, seed=5, hidden_size=32, num_layers=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_size_is_what_is_promised(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    model = build_tiny_model(tiny_tokenizer)
    assert 300_000 <= sum(parameter.numel() for parameter in model.parameters()) <= 1_000_000
    assert model.dtype == torch.float32
    assert not model.training
    assert model.get_input_embeddings().num_embeddings == len(tiny_tokenizer)


def test_a_saved_model_loads_as_it_was(tmp_path: Path, tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    folder = save_tiny_model(tmp_path / "model", seed=1)
    loaded = AutoModelForCausalLM.from_pretrained(folder)
    assert digest(loaded) == digest(build_tiny_model(tiny_tokenizer, seed=1))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = "<|im_start|>user\nP_O\n_√G<|im_end|>\n<answer>Up || Left</answer>"
    assert tokenizer(text)["input_ids"] == tiny_tokenizer(text)["input_ids"]
    assert tokenizer.chat_template == CHAT_TEMPLATE
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.padding_side) == ("<|im_end|>", "<|endoftext|>", "left")




@pytest.mark.parametrize("symbols", ["P_OGX", "#_OXPS", "____\nPOGX", "√"])
def test_every_symbol_of_a_map_is_one_token(tiny_tokenizer: PreTrainedTokenizerFast, symbols: str) -> None:
    ids = tiny_tokenizer(symbols)["input_ids"]
    assert [tiny_tokenizer.decode([token]) for token in ids] == list(symbols)


def test_a_place_on_the_map_is_a_place_in_the_sequence(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    """Maps of the same size take the same number of tokens, whatever is on them."""
    env = gymnasium.make("ragen/FrozenLake-v0", disable_env_checker=True)
    lengths = {len(tiny_tokenizer(env.reset(seed=seed)[0])["input_ids"]) for seed in range(50)}
    assert lengths == {4 * 4 + 3}


def test_messages_are_short(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    turns = AgentTurns(gymnasium.make("ragen/FrozenLake-v0", disable_env_checker=True), think=False)
    first, _ = turns.reset(seed=0)
    second, *_ = turns.step("<answer>Left</answer>")
    assert len(tiny_tokenizer(first)["input_ids"]) < 50
    assert len(tiny_tokenizer(second)["input_ids"]) < 35


def test_a_room_of_sokoban_is_short_and_a_place_in_it_a_place_in_the_sequence() -> None:
    tokenizer = build_tiny_tokenizer(env="ragen/Sokoban-v0")
    turns = AgentTurns(gymnasium.make("ragen/Sokoban-v0", disable_env_checker=True), think=False)
    lengths = {len(tokenizer(turns.reset(seed=seed)[0])["input_ids"]) for seed in range(20)}
    assert lengths == {51}
    assert len(TOKENIZER(turns.reset(seed=0)[0])["input_ids"]) > 150
    assert len(tokenizer(turns.step("<answer>Left</answer>")[0])["input_ids"]) == 46


@pytest.fixture(scope="module")
def shop_tokenizer() -> PreTrainedTokenizerFast:
    return build_tiny_tokenizer(env="ragen/ToyShop-v0")


def test_every_product_of_the_toy_shop_has_a_token(shop_tokenizer: PreTrainedTokenizerFast) -> None:
    """The same one in a line of results and in the reply that buys: copying is then one step."""
    turns = AgentTurns(gymnasium.make("ragen/ToyShop-v0", disable_env_checker=True), think=False)
    shop = turns.unwrapped
    assert isinstance(shop, ToyShop)
    seen = set()
    turns.reset(seed=0)
    for colour in ("black", "white", "red", "blue", "green", "gray", "yellow", "brown"):
        for kind in ("shoe", "clothing", "accessory"):
            for size in ("small", "medium", "large", "xlarge"):
                turns.reset(seed=0)
                page, *_ = turns.step(turns.format_reply([f"search:{size} {colour} {kind}"]))
                tokens = shop_tokenizer(page)["input_ids"]
                at = [tokens.index(shop_tokenizer.convert_tokens_to_ids(hit.asin)) for hit in shop.hits]
                assert at == list(range(at[0], at[0] + 2 * len(at), 2))  # the rest of a result's line is a token, too
                best = shop_tokenizer(f"<answer>buy:{shop.hits[0].asin}</answer>")["input_ids"]
                assert best[-2] == tokens[at[0]]
                seen.add(shop.hits[0].asin)
    assert len(seen) == 96


def test_words_of_an_instruction_are_tokens_and_the_instruction_is_not(
    shop_tokenizer: PreTrainedTokenizerFast,
) -> None:
    wanted = shop_tokenizer("Wanted: find me a large red leather shoe with side zipper, and price lower")["input_ids"]
    words = [shop_tokenizer.decode([token]) for token in wanted]
    assert words[2:] == " find| me| a| large| red| leather| shoe| with| side| zipper|,| and| price| lower".split("|")
    searched = shop_tokenizer("<answer>search:large red leather shoe</answer>")["input_ids"]
    assert searched[-4:-1] == wanted[6:9]


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_comes_back(text: str) -> None:
    ids = TOKENIZER(text)["input_ids"]
    assert TOKENIZER.decode(ids) == text


@settings(max_examples=50, deadline=None)
@given(
    parts=st.lists(
        st.sampled_from(
            ["<answer>", "</answer>", "||", "Up", "Left", "user\n", "State:\n", "P_O", "√", " ", "<", "\n", "7"]
        )
    )
)
def test_text_made_of_whole_line_tokens_comes_back(parts: list[str]) -> None:
    text = "".join(parts)
    assert TOKENIZER.decode(TOKENIZER(text)["input_ids"]) == text


def test_the_template_only_appends(tiny_tokenizer: PreTrainedTokenizerFast) -> None:
    chat = Chat(tiny_tokenizer, reply_prefix="<answer>")
    assert chat.end_of_turn_id == tiny_tokenizer.eos_token_id
    ids = chat.start("P_\n_G") + chat.encode_reply("<answer>Down</answer>")
    ids += chat.extend(ids[-1], "__\nPG")
    assert tiny_tokenizer.decode(ids) == (
        "<|im_start|>user\nP_\n_G<|im_end|>\n<|im_start|>assistant\n<answer>Down</answer><|im_end|>\n"
        "<|im_start|>user\n__\nPG<|im_end|>\n<|im_start|>assistant\n<answer>"
    )


def test_a_vocabulary_without_room_for_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size is 299; a byte-level vocabulary needs at least 300"):
        build_tiny_tokenizer(299)
