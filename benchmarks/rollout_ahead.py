"""How long does a step take if the next rollout is played beside the update (``one_step_off_policy``)?

    python benchmarks/rollout_ahead.py             # some minutes on two cores
    python benchmarks/rollout_ahead.py --smoke     # a step of the smallest case, written to runs/ only

Every step of an environment takes 50 ms, in which it waits. Replies come from a process of its own, as from a vLLM
server: it holds weights that the trainer sends it, answers as an engine does
(``ragen_trl/policies/vllm/engines.py: Engine``), and samples with a ``TransformersPolicy``. Next to that, a copy in the
trainer's own process samples. The model is tiny; what a large one would take on GPUs is waited for: ``--reply_wait``
seconds for the replies of a turn, ``--update_wait`` for an update. With 0 for both, computing counts alone, which wants
a quiet machine with a core for each side. Runs with the option and without it take turns. Writes
``results/rollout_ahead.json``: medians of rollout, update and step, and the larger of rollout and update.
"""

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from records.results import write_result
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, TrainerCallback

from ragen_envs import AgentTurns, TextEnv
from ragen_trl import StarPOConfig, StarPOTrainer
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.tiny_model import build_tiny_model, build_tiny_tokenizer
from ragen_trl.policies.transformers import TransformersPolicy
from ragen_trl.policies.vllm.requests import Completion, Context
from ragen_trl.policies.vllm.servers import Servers
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.interfaces import Request

WAIT = 0.05  # seconds
MAX_CONTEXT = 4096
MODEL = {"hidden_size": 32, "num_layers": 2}
SAMPLERS = ("another process", "the trainer's process")
_WARM_UP = 2  # steps; the first rollout is played before its update in any case


class Counter(TextEnv):
    """Answers every action with a word, after `WAIT`, and pays by chance."""

    @property
    def instruction(self) -> str:
        """Nothing to understand."""
        return "Go on."

    def _start(self, options: Any) -> str:
        return "Begin."

    def _parse_action(self, text: str) -> str:
        return text

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        time.sleep(WAIT)
        won = bool(self.outcome_random.random() < 0.5)
        return "Next.", float(won), False, {"success": won, "action_is_effective": True}


class AnyReply(AgentTurns):
    """Takes whatever an untrained model says as one action."""

    def step(self, action: str) -> Any:
        """Read every reply as an answer."""
        return super().step(self.format_reply(["on"]))


class Learner(StarPOTrainer):
    """A trainer whose updates take ``update_wait`` seconds more."""

    update_wait = 0.0

    def training_loss(self, model: PreTrainedModel, inputs: dict[str, Any]) -> torch.Tensor:
        """As always, after a wait."""
        time.sleep(self.update_wait / self.args.gradient_accumulation_steps)
        return super().training_loss(model, inputs)


class ProcessEngine:
    """A sampler in a process of its own, with its own copy of the weights.

    Args:
        model: Folder of the model.
        wait: Seconds that the replies of a turn take more.
    """

    max_context = MAX_CONTEXT

    def __init__(self, model: str, wait: float) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=serve, args=(other, model, wait), daemon=True)
        self._process.start()

    def complete(self, contexts: Sequence[Context], sampling: Sampling, stop_ids: frozenset[int]) -> list[Completion]:
        """Replies to all contexts."""
        self._connection.send((list(contexts), sampling))
        found: list[Completion] = self._connection.recv()
        return found

    def anyone(self, playing: bool) -> bool:
        """There is one process."""
        return playing

    def load(self, model: PreTrainedModel) -> None:
        """Send the weights."""
        self._connection.send({name: value.detach().numpy() for name, value in model.state_dict().items()})
        self._connection.recv()

    def sleep(self) -> None:
        """It has memory of its own."""

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join()


def serve(connection: Connection, folder: str, wait: float) -> None:
    """The sampler: takes weights, or contexts to reply to, until the other side is closed."""
    torch.set_num_threads(1)
    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    chat = Chat(tokenizer)
    while True:
        try:
            asked = connection.recv()
        except EOFError:
            return
        if isinstance(asked, dict):
            model.load_state_dict({name: torch.from_numpy(value) for name, value in asked.items()})
            connection.send(None)
            continue
        contexts, sampling = asked
        time.sleep(wait)
        policy = TransformersPolicy(model, chat, sampling)
        policy.begin([context.seed for context in contexts])
        requests = [Request(row, "", tuple(one.ids), None, one.max_tokens) for row, one in enumerate(contexts)]
        connection.send([Completion(list(reply.ids), list(reply.logprobs)) for reply in policy.reply(requests)])


class Generation:
    """As much of TRL's ``VLLMGeneration`` as the trainers use.

    Attributes:
        engine: Gets the weights.
    """

    engine: ProcessEngine

    def __init__(self, model: PreTrainedModel, mode: str, **_: Any) -> None:
        self.model, self.mode = model, mode
        self.vllm_client = Servers([self])

    def get_server_info(self) -> dict[str, Any]:
        """What a server says of itself."""
        return {"model_config": {"max_model_len": MAX_CONTEXT, "logprobs_mode": "processed_logprobs"}}

    def instance(self) -> str:
        """The process that answers."""
        return "the only one"

    def sync_weights(self) -> None:
        """Send the policy's weights."""
        self.engine.load(self.model)


class Stopwatch(TrainerCallback):
    """Seconds from the end of one update to the end of the next one."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._last = 0.0

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        """Before the first step."""
        self._last = time.perf_counter()

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        """An update is over."""
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now


def main() -> None:
    """Time all cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--reply_wait", type=float, default=0.05)
    parser.add_argument("--update_wait", type=float, default=1.0)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "results" / "rollout_ahead.json")
    options = parser.parse_args()
    if options.smoke:
        options.turns, options.steps, options.rounds, options.update_wait = [2], 1, 1, 0.1
        options.output = Path("runs/benchmark-rollout-ahead-smoke.json")
    torch.set_num_threads(1)
    cases = [compared(sampler, turns, options) for sampler in SAMPLERS for turns in options.turns]
    given = {name: getattr(options, name) for name in ("steps", "rounds", "reply_wait", "update_wait")}
    shape = " ".join([f"--turns {' '.join(map(str, options.turns))}", *(f"--{name} {given[name]}" for name in given)])
    command = f"python benchmarks/rollout_ahead.py {shape}"
    write_result(options.output, command, wait=WAIT, model=MODEL, **given, cases=cases)


def compared(sampler: str, turns: int, options: argparse.Namespace) -> dict[str, Any]:
    """One case: steps with the option and without it, in rounds that take turns, by one trainer."""
    steps: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = build_tiny_tokenizer()
        build_tiny_model(tokenizer, 0, **MODEL).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        engine = ProcessEngine(folder, options.reply_wait) if sampler == SAMPLERS[0] else None
        args = arguments(folder, turns, options.steps + _WARM_UP, served=engine is not None)
        with patch("trl.trainer.grpo_trainer.VLLMGeneration", Generation):
            trainer = Learner(folder, lambda: environment(turns), args)
        trainer.update_wait = options.update_wait
        if engine is not None:
            trainer.vllm_generation.engine = trainer._engine = engine
        for number in range(options.rounds):
            for ahead in (False, True) if number % 2 == 0 else (True, False):
                steps[ahead] += timed(trainer, ahead)
        if engine is not None:
            engine.close()
    median = {
        ahead: {name: statistics.median(step[name] for step in found) for name in found[0]}
        for ahead, found in steps.items()
    }
    now, then = median[False], median[True]
    print(f"{sampler}, {turns} turns: {now['step']:.2f} s, ahead {then['step']:.2f} s", flush=True)
    return {
        "sampler": sampler,
        "turns": turns,
        "steps": len(steps[True]),
        "after": now,
        "ahead": {"step": then["step"], "rollout": then["rollout"]},
        "larger": max(now["rollout"], now["update"]),
        "ratio": then["step"] / now["step"],
    }


def timed(trainer: StarPOTrainer, ahead: bool) -> list[dict[str, float]]:
    """Seconds of each step of a run: all of it, its rollout, and the rest."""
    trainer.args.one_step_off_policy = ahead
    watch = Stopwatch()
    trainer.add_callback(watch)
    trainer.train()
    trainer.remove_callback(watch)
    rollouts = [row["rollout/seconds"] for row in trainer.state.log_history if "rollout/seconds" in row]
    pairs = list(zip(watch.seconds, rollouts, strict=True))[_WARM_UP:]
    return [{"step": step, "rollout": rollout, "update": step - rollout} for step, rollout in pairs]


def environment(turns: int) -> AgentTurns:
    """Its episodes all have so many turns."""
    return AnyReply(Counter(), think=False, max_turns=turns, max_actions=turns, max_actions_per_turn=1)


def arguments(folder: str, turns: int, steps: int, served: bool) -> StarPOConfig:
    """Rollouts of 16 trajectories, one update on each."""
    return StarPOConfig(
        output_dir=folder,
        max_steps=steps,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        num_generations=8,
        max_turns=turns,
        think=False,
        max_reply_length=4,
        max_completion_length=100 * turns,
        learning_rate=1e-4,
        beta=0.0,
        use_vllm=served,
        vllm_mode="server",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
    )


if __name__ == "__main__":
    main()
