"""Replies of demonstrations with the oracle's thought before the answer, so a warm start teaches reasoning too."""

import logging
from collections.abc import Sequence

import numpy as np

from ragen_envs import AgentTurns, NoOracleError, explain
from ragen_trl.rollout.chat import Chat

logger = logging.getLogger(__name__)


class Explained:
    """Writes replies. Where they have thoughts, `ragen_envs.explain` gives them.

    A thought stays empty in an environment that explains nothing, and in a reply that would be longer than
    ``max_reply_length`` tokens with it. Each of the two is logged once.
    """

    def __init__(self, chat: Chat, max_reply_length: int) -> None:
        self._chat = chat
        self._max_reply_length = max_reply_length
        self._logged: set[str] = set()

    def __call__(self, turns: AgentTurns, actions: Sequence[str], random: np.random.Generator) -> str:
        """The reply with these actions, to the environment before it. Its wording is drawn apart from the actions."""
        without = turns.format_reply(actions)
        if not turns.reply_format.think:
            if (length := len(self._chat.encode_reply(without))) > self._max_reply_length:
                self._log_once(
                    "answer",
                    f"a demonstrated reply has {length} tokens, more than max_reply_length={self._max_reply_length}: "
                    "the model would learn replies that are cut when it plays; give a larger one",
                )
            return without
        try:
            reply = turns.format_reply(actions, explain(turns, actions, random.spawn(1)[0]))
        except NoOracleError as error:
            self._log_once("none", f"demonstrations have empty thoughts: {error}")
            return without
        length = len(self._chat.encode_reply(reply))
        if length > self._max_reply_length:
            self._log_once(
                "long",
                f"a demonstration leaves its thought empty where its reply would be over max_reply_length="
                f"{self._max_reply_length} tokens (one has {length}); give a larger one to teach thoughts",
            )
            return without
        return reply

    def _log_once(self, about: str, message: str) -> None:
        if about not in self._logged:
            self._logged.add(about)
            logger.warning(message)
