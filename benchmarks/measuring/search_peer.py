"""What bm25s makes of products and queries; run by webshop_search.py, in the virtual environment of the library.

    python benchmarks/measuring/search_peer.py WORK.json RESULT.json

WORK.json: {"documents": [text], "document_tokens": [[token]], "queries": [text], "query_tokens": [[token]], "limit": n}
RESULT.json: {setting: {"rankings": [[document number]], "seconds": [of each query]}}
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bm25s

PEER_DEFAULTS, LUCENE = {"k1": 1.5, "b": 0.75}, {"k1": 0.9, "b": 0.4}


def main() -> None:
    """Index and search with each setting."""
    work = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    texts = (work["documents"], work["queries"])
    tokens = (work["document_tokens"], work["query_tokens"])

    def split(batch: list[str]) -> Any:
        return bm25s.tokenize(batch, show_progress=False)

    results = {
        "bm25s, defaults": run(*texts, split, PEER_DEFAULTS, work["limit"]),
        "bm25s, Lucene's k1 and b": run(*texts, split, LUCENE, work["limit"]),
        "bm25s, Lucene's k1 and b, our tokens": run(*tokens, lambda batch: batch, LUCENE, work["limit"]),
    }
    Path(sys.argv[2]).write_text(json.dumps(results), encoding="utf-8")


def run(
    documents: list[Any],
    queries: list[Any],
    prepare: Callable[[list[Any]], Any],
    parameters: dict[str, float],
    limit: int,
) -> dict[str, Any]:
    """Rankings, and the time of each query with the cutting of its text into words."""
    index = bm25s.BM25(method="lucene", **parameters)
    index.index(prepare(documents), show_progress=False)
    rankings, seconds = [], []
    for query in queries:
        start = time.perf_counter()
        numbers, scores = index.retrieve(prepare([query]), k=min(limit, len(documents)), show_progress=False)
        seconds.append(time.perf_counter() - start)
        rankings.append([int(number) for number, score in zip(numbers[0], scores[0], strict=True) if score > 0])
    return {"rankings": rankings, "seconds": seconds}


if __name__ == "__main__":
    main()
