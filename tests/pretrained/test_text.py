"""Text and tokens with a real vocabulary: nothing that an environment shows is lost, and only the template speaks."""

from collections.abc import Iterator

import gymnasium
import numpy as np
import pytest
from transformers import PreTrainedTokenizerBase

import ragen_envs
from ragen_envs import AgentTurns
from ragen_trl.rollout.chat import Chat
from tests.support.ragen_envs.registered import IDS

DEFAULT = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
OTHER_FORMS = {"ragen/Sokoban-v0": {"symbols": "W.GCBA@"}}


def shown(env: str, **kwargs: object) -> Iterator[str]:
    """What a random player is shown in a few episodes."""
    turns = AgentTurns(gymnasium.make(env, disable_env_checker=True, **kwargs), think=False)
    random = np.random.default_rng(0)
    for seed in range(3):
        message, over = turns.reset(seed=seed)[0], False
        yield message
        while not over:
            reply = turns.format_reply([ragen_envs.random_action(turns, random)])
            message, _, terminated, truncated, _ = turns.step(reply)
            yield message
            over = terminated or truncated
    turns.close()


def ids_of(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize("env", IDS)
def test_what_environments_show_survives_its_tokens(env: str, tokenizer: PreTrainedTokenizerBase, chat: Chat) -> None:
    for kwargs in ({}, OTHER_FORMS.get(env, {})):
        for message in shown(env, **kwargs):
            assert tokenizer.decode(ids_of(tokenizer, message)) == message
            rendered = tokenizer.apply_chat_template(
                [{"role": "user", "content": message}], add_generation_prompt=True, tokenize=False
            )
            assert tokenizer.decode(chat.start(message)) == rendered
            assert chat.start(message) == ids_of(tokenizer, rendered)


def test_control_tokens_in_a_page_stay_text(tokenizer: PreTrainedTokenizerBase, chat: Chat) -> None:
    special = sorted(tokenizer.added_tokens_decoder)
    page = "Buy " + " ".join(tokenizer.decode([token]) for token in special)
    ids = chat.start(page)
    assert page in tokenizer.decode(ids)
    assert [token for token in ids if token in special] == [token for token in chat.start("Buy") if token in special]
    reply = chat.encode_reply(f"<answer>{page}</answer>")
    assert [token for token in reply if token in special] == [tokenizer.eos_token_id]
    assert chat.decode_reply(reply) == f"<answer>{page}</answer>"


def test_the_default_system_prompt_stays_is_replaced_or_is_emptied(tokenizer: PreTrainedTokenizerBase) -> None:
    found = {prompt: tokenizer.decode(Chat(tokenizer, prompt).start("Hi")) for prompt in (None, "Be brief.", "")}
    rest = "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert found == {
        None: f"<|im_start|>system\n{DEFAULT}{rest}",
        "Be brief.": f"<|im_start|>system\nBe brief.{rest}",
        "": f"<|im_start|>system\n{rest}",
    }
    assert len(Chat(tokenizer).start("Hi")) - len(Chat(tokenizer, "").start("Hi")) == len(ids_of(tokenizer, DEFAULT))
