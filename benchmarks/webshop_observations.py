"""How many tokens does an episode in the store take, in each observation mode?

    python benchmarks/webshop_observations.py                # generated products, and the real ones if they are found
    python benchmarks/webshop_observations.py --data FOLDER  # the public 1000 products; see measuring/real_products.py
    python benchmarks/webshop_observations.py --smoke        # a few episodes, the embedded tokenizer, to runs/ only

The shopper of demonstrations buys, without mistakes, what the first goals of ``test_by_product`` ask for; on each
product that it opens it first looks at the features, so that all kinds of pages are seen. Tokens are those of a
rollout: the chat template's with the messages of ``AgentTurns``, and those of the replies, without thoughts. Writes
``results/webshop_observations.json``.
"""

import argparse
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from measuring.real_products import asked_for
from records.results import write_result
from transformers import AutoTokenizer

from ragen_envs import AgentTurns, WebShop
from ragen_envs.webshop.shoppers import careless_shop_action
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.policies.tiny_model import build_tiny_tokenizer
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import make_chat

HERE = Path(__file__).parent
MODEL = "models/SmolLM2-135M-Instruct"
MODES = ("text", "text_rich", "html", "short")
TURNS = 20


def main() -> int:
    """Plays all rows; exit status 2 if a folder or the model is named and not there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--model", default=MODEL, help="whose tokenizer and chat template are used")
    parser.add_argument("--data", type=Path, help="folder of the public 1000-product set")
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=HERE / "results" / "webshop_observations.json")
    options = parser.parse_args()
    if options.smoke:
        options.episodes, options.output = 3, Path("runs/benchmark-webshop-observations-smoke.json")
    elif not Path(options.model).is_dir():
        print(f"there is no model in {options.model}; run make smollm2, or name another with --model", file=sys.stderr)
        return 2
    data = asked_for(options.data)
    tokenizer = build_tiny_tokenizer() if options.smoke else AutoTokenizer.from_pretrained(options.model)
    rows = []
    for name, catalog in [("synthetic", "synthetic"), *([("real 1000", str(data))] if data else [])]:
        for mode in MODES:
            for shown in (False, True):
                shop = {"catalog": catalog, "observation_mode": mode, "show_actions": shown}
                found = measure(shop, tokenizer, options.episodes)
                rows.append({"catalog": name, "mode": mode, "show_actions": shown, **found})
                print(rows[-1], flush=True)
    model = "embedded" if options.smoke else Path(options.model).name
    command = "python benchmarks/webshop_observations.py"
    write_result(options.output, command, model=model, split="test_by_product", rows=rows)
    return 0


def measure(shop: dict[str, Any], tokenizer: Any, episodes: int) -> dict[str, Any]:
    """Tokens of episodes, and of messages by kind of page."""
    env = WebShop(split="test_by_product", max_steps=None, **shop)
    turns = AgentTurns(env, max_turns=TURNS, max_actions=TURNS, max_actions_per_turn=1, think=False)
    chat = make_chat(tokenizer, turns, StarPOConfig(output_dir="runs/none", use_cpu=True, report_to="none"))
    totals, pages = [], defaultdict(list)
    for index in range(min(episodes, env.count())):
        lengths = episode(turns, env, chat, index)
        totals.append(sum(tokens for _, tokens in lengths))
        for kind, tokens in lengths:
            pages[kind].append(tokens)
    env.close()
    return {
        "n": len(totals),
        "tokens": statistics.fmean(totals),
        "tokens_p95": float(np.quantile(totals, 0.95)),
        "pages": {kind: statistics.fmean(found) for kind, found in pages.items()},
    }


def episode(turns: AgentTurns, env: WebShop, chat: Chat, index: int) -> list[tuple[str, int]]:
    """Tokens of each message, by the page that it shows, and of each reply."""
    message, _ = turns.reset(options={"index": index})
    ids, kind, looked = chat.start(message), "start", False
    lengths, random, over = [(kind, len(ids))], np.random.default_rng(index), False
    while not over:
        action = careless_shop_action(env, TURNS, random, 0.0)
        if kind == "item" and not looked:
            action, looked = "click[features]", True
        reply = chat.encode_reply(turns.format_reply([action]))
        lengths.append(("reply", len(reply)))
        message, _, terminated, truncated, _ = turns.step(turns.format_reply([action]))
        over = terminated or truncated
        if not over:
            kind = env.session.answer.url.split("/")[3]
            kind = {"search_results": "results", "item_page": "item", "item_sub_page": "sub page"}.get(kind, "start")
            looked = looked and kind != "results"
            lengths.append((kind, len(chat.extend(reply[-1], message))))
    return lengths


if __name__ == "__main__":
    sys.exit(main())
