"""What a server may read as a control token: the tokens of all families here, and none of what environments show."""

import gymnasium
import pytest

from ragen_envs import AgentTurns
from ragen_trl.policies.api.control_texts import BREAK, broken
from ragen_trl.rollout.control_tokens import TAGS
from tests.support.ragen_envs.registered import every_id
from tests.support.ragen_trl.chat_families import FAMILIES, bundled_templates, bundled_tokenizer

KNOWN = sorted(
    {special for family in FAMILIES.values() for special in family.specials}
    | {token.content for name in bundled_templates() for token in bundled_tokenizer(name).added_tokens_decoder.values()}
    | {"<s>", "</s>", "[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<tool_call>", "</tool_response>", "[TOOL_CALLS]"}
)


@pytest.mark.parametrize("token", [token for token in KNOWN if token not in TAGS])
def test_control_tokens_of_known_families_are_broken(token: str) -> None:
    sent, found = broken(f"a {token} b {token}")
    assert found == [token, token]
    assert token not in sent
    assert sent.replace(BREAK, "") == f"a {token} b {token}"


@every_id
def test_messages_of_environments_are_sent_as_they_are(env_id: str) -> None:
    turns = AgentTurns(gymnasium.make(env_id, disable_env_checker=True))
    messages = [turns.reset(seed=1)[0], turns.step("unreadable")[0]]
    turns.close()
    assert [broken(message) for message in messages] == [(message, []) for message in messages]


@pytest.mark.parametrize("text", ["x < 3 || y > 2", "[SEP] a [1]", "<b>bold</b> <think></think>", "a <| b", "<|  |>"])
def test_other_text_stays(text: str) -> None:
    assert broken(text) == (text, [])
