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


def test_its_own_template_is_used_and_only_appends(tokenizer: PreTrainedTokenizerBase) -> None:
    """A written conversation has the tokens that the template gives the whole of it at once."""
    for prefix in ("", "<think>", "<answer>"):
        chat = Chat(tokenizer, reply_prefix=prefix)
        replies = [f"{prefix or 'So '}left.</think><answer>Left</answer>", f"{prefix or 'So '}12 || Up</answer>"]
        messages, ids = [{"role": "user", "content": "P_\n_G"}], chat.start("P_\n_G")
        for reply, observation in zip(replies, ["_P\n_G", "Turn 3 of 5\n\n√"], strict=True):
            ids += chat.encode_reply(reply)
            ids += chat.extend(ids[-1], observation)
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": observation}]
        rendered = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False) + prefix
        assert tokenizer.decode(ids) == rendered


def test_the_default_system_prompt_stays_is_replaced_or_is_emptied(tokenizer: PreTrainedTokenizerBase) -> None:
    found = {prompt: tokenizer.decode(Chat(tokenizer, prompt).start("Hi")) for prompt in (None, "Be brief.", "")}
    rest = "<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert found == {
        None: f"<|im_start|>system\n{DEFAULT}{rest}",
        "Be brief.": f"<|im_start|>system\nBe brief.{rest}",
        "": f"<|im_start|>system\n{rest}",
    }
    assert len(Chat(tokenizer).start("Hi")) - len(Chat(tokenizer, "").start("Hi")) == len(ids_of(tokenizer, DEFAULT))


def test_a_reply_ends_where_template_and_model_say(tokenizer: PreTrainedTokenizerBase, chat: Chat) -> None:
    assert (chat.end_of_turn_id, tokenizer.eos_token, chat.stop_ids(2)) == (2, "<|im_end|>", {2})
