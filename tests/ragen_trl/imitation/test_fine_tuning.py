"""Warm start: what is demonstrated, what of it is learnt, and a folder that is there whole or not at all."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from ragen_envs import AgentTurns, best_action, demonstration
from ragen_trl import StarPOConfig
from ragen_trl.config.options import WarmStartConfig
from ragen_trl.imitation.demonstrations import demonstrations_from
from ragen_trl.imitation.fine_tuning import PackedSFTTrainer, warm_start
from ragen_trl.imitation.teaching import Example, correct, demonstrate, example
from ragen_trl.policies.api import ApiPolicy
from ragen_trl.policies.sampling import Sampling
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.tiny_model import build_tiny_model
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.environments import EnvPool, env_specs
from ragen_trl.rollout.interfaces import Start, TurnEnv
from ragen_trl.rollout.seeds import EVALUATION_END, WARM_START
from ragen_trl.rollout.teacher import corrections
from ragen_trl.trajectory import Trajectory, Turn
from tests.support.ragen_trl.openai_server import Fault, OpenAIServer, Payload
from tests.support.ragen_trl.trainers import TOKENIZER, on_cpu

LAKE = "ragen/FrozenLake-v0"
CHAT = Chat(TOKENIZER, reply_prefix="<answer>")
FIRM: dict[str, Any] = {"env_kwargs": {"is_slippery": False, "frozen_prob": 0.9}}


def config(**values: Any) -> StarPOConfig:
    return on_cpu(**{"think": False, **FIRM, **values})


def played(count: int, noise: float, args: StarPOConfig | None = None, **values: Any) -> list[Trajectory]:
    return demonstrate(LAKE, args or config(), CHAT, WarmStartConfig(count, noise, **values), range(count))


def test_demonstrations_use_seeds_of_their_own_and_are_repeatable() -> None:
    first, again, other = played(5, 0.5), played(5, 0.5), played(5, 0.5, config(seed=1))
    assert [trajectory.seed for trajectory in first] == list(range(WARM_START, WARM_START + 5))
    assert first == again
    assert [t.token_ids for t in first] != [t.token_ids for t in other]
    assert WARM_START > EVALUATION_END


def learnt_tokens(told: Example) -> list[list[int]]:
    return [[label for label in labels if label != -100] for labels in told["labels"]]


def test_labels_are_the_reply_tokens_and_nothing_else() -> None:
    for trajectory in played(20, 0.5):
        told = example(trajectory)
        assert told["input_ids"] == [list(trajectory.token_ids)]
        (learnt,) = learnt_tokens(told)
        assert learnt == [token for turn in trajectory.turns for token in turn.reply_ids]
        text = CHAT.tokenizer.decode(learnt)
        assert text == "".join(turn.reply.removeprefix("<answer>") + "<|im_end|>" for turn in trajectory.turns)


# A model's own episodes, corrected


@pytest.mark.parametrize("contexts", [{}, {"window_turns": 1}, {"context": "actions_so_far"}], ids=str)
def test_the_oracle_corrects_each_turn_in_the_state_and_context_that_the_model_had(contexts: dict[str, Any]) -> None:
    """The same episodes played again, and the oracle asked by hand."""
    args = config(max_actions_per_turn=1, **contexts)
    at_random = ScriptedPolicy(half_right, CHAT)
    taught, successes = correct(at_random, LAKE, args, WarmStartConfig(demo_actions_per_turn=1), range(12))
    starts = [Start.drawn(seed, (args.seed, seed)) for seed in range(WARM_START, WARM_START + 12)]
    best: list[list[str]] = [[] for _ in starts]

    class Asked(ScriptedPolicy):
        def reply(self, requests: Any) -> Any:
            for request in requests:
                assert isinstance(request.env, AgentTurns)
                reply = request.env.format_reply([best_action(request.env, request.env.actions_left)])
                best[request.row].append(reply.removeprefix("<answer>") + "<|im_end|>")
            return super().reply(requests)

    pool = EnvPool(args)
    played = pool.play(pool.take(env_specs(LAKE, args) * len(starts)), Asked(half_right, CHAT), starts)
    assert successes == sum(one.success for one in played)
    unlike = 0
    for told, one, wanted in zip(taught, played, best, strict=True):
        assert [CHAT.tokenizer.decode(tokens) for tokens in learnt_tokens(told)] == wanted
        segments = iter(one.segments)
        read: tuple[int, ...] = ()  # what the model had read before each reply
        for ids, labels, turn, place in zip(*told.values(), one.turns, range(len(one.turns)), strict=True):
            if place == 0 or turn.context_ids is not None:
                read = next(segments).turns[0].prompt_ids
            else:
                read += turn.prompt_ids
            assert tuple(ids[: labels.count(-100)]) == read and labels[: len(read)] == [-100] * len(read)
            read += turn.reply_ids
            unlike += tuple(ids[len(read) - len(turn.reply_ids) :]) != turn.reply_ids
    assert 5 < unlike < sum(len(one.turns) for one in played)


def test_a_correction_by_hand() -> None:
    first = Turn((1, 2), (3, 4), (), observation="?", reply="!", reward=0.0, oracle_ids=(30,))
    grown = replace(first, prompt_ids=(5,), reply_ids=(6,), oracle_ids=(31, 32))
    rebuilt = replace(first, context_ids=(7, 8), prompt_ids=(9,), reply_ids=(3,), oracle_ids=(33,))
    unasked = replace(first, prompt_ids=(0,), oracle_ids=())
    told = example(*corrections(Trajectory((first, unasked, grown, rebuilt), seed=0, terminated=True)))
    assert told["input_ids"] == [[1, 2, 30], [1, 2, 3, 4, 0, 3, 4, 5, 31, 32], [7, 8, 9, 33]]
    assert told["labels"] == [[-100] * 2 + [30], [-100] * 8 + [31, 32], [-100] * 3 + [33]]


def test_an_episode_without_a_correction_that_fits_is_left_out() -> None:
    player = ScriptedPolicy(half_right, CHAT)
    told, _ = correct(player, LAKE, config(), WarmStartConfig(), range(3))
    first_prompts = {one["labels"][0].count(-100) for one in told}
    player.max_context = max(first_prompts) + 1  # room for a token of a reply, which no correction is
    assert len(told) == 3 and correct(player, LAKE, config(), WarmStartConfig(), range(3)) == ([], 0)


SHORT = WarmStartConfig(32, 0.0, demo_batch_size=8)


def begin(folder: Path, options: WarmStartConfig = SHORT, seed: int = 0, of_model: int = 0, eps: float = 1e-6) -> Path:
    model = build_tiny_model(TOKENIZER, of_model, hidden_size=32, num_layers=1)
    model.config.rms_norm_eps = eps
    short = {"max_turns": 3, "max_reply_length": 8}  # at first the model fills whatever it may
    return warm_start(model, TOKENIZER, LAKE, config(seed=seed, **short), options, folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a warm start that nothing stopped; nobody changes it."""
    return begin(tmp_path_factory.mktemp("finished") / "warm")


def test_the_folder_holds_model_tokenizer_and_a_note(finished: Path) -> None:
    folder = finished
    assert [path.name for path in folder.parent.iterdir()] == ["warm"]
    note = {"episodes": [32], "noise": 0.0, "successes": [32], "updates": 4}
    assert json.loads((folder / "warm_start.json").read_text()) == note
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.use_cache
    fresh = build_tiny_model(TOKENIZER, hidden_size=32, num_layers=1)
    pairs = zip(model.parameters(), fresh.parameters(), strict=True)
    assert all(not torch.equal(learnt, before) for learnt, before in pairs)
    text = "State:\nP_\n_G"
    assert AutoTokenizer.from_pretrained(folder)(text)["input_ids"] == TOKENIZER(text)["input_ids"]


def test_adapters_are_merged_into_an_ordinary_model(tmp_path: Path) -> None:
    options = WarmStartConfig(32, 0.0, demo_batch_size=8, demo_lora_r=2)
    folder = begin(tmp_path / "warm", options)
    assert not (folder / "adapter_config.json").exists()
    fresh = dict(build_tiny_model(TOKENIZER, hidden_size=32, num_layers=1).named_parameters())
    learnt = dict(AutoModelForCausalLM.from_pretrained(folder).named_parameters())
    changed = {name for name, value in learnt.items() if not torch.equal(value, fresh[name])}
    assert changed == {name for name in fresh if "proj.weight" in name}


def test_packed_sequences_make_the_step_of_single_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = WarmStartConfig(48, 0.5, demo_batch_size=8, demo_rounds=1)
    packed = AutoModelForCausalLM.from_pretrained(begin(tmp_path / "packed", options))
    monkeypatch.setattr("ragen_trl.imitation.fine_tuning.can_share_prefixes", lambda *_: False)
    plain = AutoModelForCausalLM.from_pretrained(begin(tmp_path / "plain", options))
    for one, other in zip(packed.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


def thought_of(reply: str) -> str:
    return reply.removeprefix("<think>").partition("</think>")[0]


def test_thoughts_are_learnt_and_change_no_action() -> None:
    silent, spoken = (
        demonstrate(
            LAKE,
            config(think=think, env_kwargs={}),
            Chat(TOKENIZER, reply_prefix="<think>" if think else "<answer>"),
            WarmStartConfig(noise=0.5),
            range(24),
        )
        for think in (False, True)
    )
    moves = [[[turn.info["actions"] for turn in one.turns] for one in told] for told in (silent, spoken)]
    assert moves[0] == moves[1]
    learnt = TOKENIZER.decode(learnt_tokens(example(spoken[0]))[0])
    assert thought_of(spoken[0].turns[0].reply) in learnt
    texts = [thought_of(turn.reply) for one in spoken for turn in one.turns]
    assert len(set(texts)) > 0.7 * len(texts)


# A warm start that was stopped ends where one that nothing stopped does


class Stopped(Exception):
    """What stops a warm start here."""


class Updates:
    """Counts the updates that are made, and stops instead of the one after ``stop_before`` of them."""

    def __init__(self) -> None:
        self.made = 0
        self.stop_before = -1


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> Iterator[Updates]:
    """Four updates are a pass, so there is a checkpoint after every one."""
    counted, step = Updates(), PackedSFTTrainer.training_step

    def counting(trainer: PackedSFTTrainer, *given: Any) -> Any:
        if counted.made == counted.stop_before:
            raise Stopped
        counted.made += 1
        return step(trainer, *given)

    monkeypatch.setattr(PackedSFTTrainer, "training_step", counting)
    return counted


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(AutoModelForCausalLM.from_pretrained(folder).state_dict())


def same(one: Path, other: Path) -> bool:
    theirs = weights(other)
    notes = [json.loads((folder / "warm_start.json").read_text()) for folder in (one, other)]
    return notes[0] == notes[1] and all(torch.equal(value, theirs[name]) for name, value in weights(one).items())


@pytest.mark.parametrize(
    "options",
    [
        SHORT,
        WarmStartConfig(32, 0.0, demo_batch_size=8, demo_lora_r=4),
        WarmStartConfig(48, 0.5, demo_batch_size=8, demo_rounds=1, demo_epochs=0.5),
        WarmStartConfig(48, 0.5, demo_batch_size=8, demo_rounds=2, demo_lora_r=4),
    ],
    ids=["all weights", "lora", "rounds", "rounds of lora"],
)
def test_it_goes_on_and_ends_where_an_unbroken_one_does(
    tmp_path: Path, updates: Updates, options: WarmStartConfig
) -> None:
    whole = begin(tmp_path / "whole", options)
    needed, updates.made, updates.stop_before = updates.made, 0, updates.made - 1
    with pytest.raises(Stopped):
        begin(tmp_path / "broken", options)
    assert [path.name for path in tmp_path.iterdir() if path.name != "whole"] == ["broken.checkpoints"]
    updates.stop_before = -1
    broken = begin(tmp_path / "broken", options)
    assert updates.made == needed and same(broken, whole)
    assert {path.name for path in broken.iterdir()} == {path.name for path in whole.iterdir()}


@pytest.mark.parametrize(
    "other",
    [
        {"options": WarmStartConfig(32, 0.0, demo_batch_size=8, demo_learning_rate=1e-3)},
        {"options": WarmStartConfig(32, 0.1, demo_batch_size=8)},
        {"seed": 1},
        {"of_model": 1},
        {"eps": 1e-3},
    ],
    ids=["rate", "demonstrations", "seed", "model", "its configuration"],
)
def test_another_one_begins_anew(tmp_path: Path, updates: Updates, other: dict[str, Any]) -> None:
    updates.stop_before = 2
    with pytest.raises(Stopped):
        begin(tmp_path / "warm")
    updates.made, updates.stop_before = 0, -1
    begin(tmp_path / "warm", **other)
    assert updates.made == 4


# Episodes that others played: which are kept, and in what tokens

SEEDS = range(20_000, 20_012)


def half_right(env: TurnEnv, random: np.random.Generator) -> str:
    """Two actions of the oracle, or of chance."""
    assert isinstance(env, AgentTurns)
    return env.format_reply(demonstration(env, env.actions_left, 2, random, 0.5))


def everything(trajectory: Trajectory) -> bool:
    return True


@pytest.mark.parametrize("contexts", [{"window_turns": 1}, {"window_turns": 2}, {"context": "actions_so_far"}], ids=str)
def test_contexts_are_those_of_the_model_that_learns(contexts: dict[str, Any]) -> None:
    """Regression: a text policy's had one context that grew."""
    args = config(max_actions_per_turn=1, **contexts)
    told = demonstrations_from(ScriptedPolicy(half_right), LAKE, args, CHAT, SEEDS, everything)
    pool = EnvPool(args)
    starts = [Start.drawn(seed, (args.seed, seed)) for seed in SEEDS]
    played = pool.play(pool.take(env_specs(LAKE, args) * len(starts)), ScriptedPolicy(half_right, CHAT), starts)
    assert told == played
    assert max(len(trajectory.segments) for trajectory in told) > 2


def test_a_teacher_may_greet_before_the_forced_prefix() -> None:
    def greets(env: TurnEnv, random: np.random.Generator) -> str:
        return "Of course! " + half_right(env, random)

    def says_nothing(env: TurnEnv, random: np.random.Generator) -> str:
        return "Of course!"

    def told_by(script: Any) -> list[Trajectory]:
        return demonstrations_from(ScriptedPolicy(script), LAKE, config(), CHAT, SEEDS, everything)

    assert told_by(greets) == told_by(half_right)
    assert told_by(says_nothing) == []


def test_a_model_behind_an_api_teaches_and_is_asked_once(tmp_path: Path) -> None:
    """The episodes of a failing row are never kept, whatever `keep` says."""

    def fault(payload: Payload, attempt: int) -> Fault | None:
        return Fault(400) if payload["messages"] == server.asked[0]["messages"] else None

    def collected() -> list[Trajectory]:
        cache = tmp_path / "cache.sqlite"
        player = ApiPolicy("m", Sampling(50), server.url, "", cache=cache, retries=0, concurrency=1)
        with closing(player) as policy:
            return demonstrations_from(policy, LAKE, config(max_turns=3), CHAT, SEEDS, everything)

    with OpenAIServer(lambda payload: "<answer>Down || Right</answer>", fault) as server:
        first = collected()
        asked = len(server.asked)
        again = collected()
    assert first == again
    assert [trajectory.seed for trajectory in first] == list(SEEDS)[1:]
    assert len(server.asked) == asked + 1  # what failed
    assert {turn.reply for trajectory in first for turn in trajectory.turns} == {"<answer>Down || Right</answer>"}


def test_warm_start_learns_from_ready_episodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []

    def spy(trajectory: Trajectory) -> Example:
        seen.append(trajectory)
        return example(trajectory)

    monkeypatch.setattr("ragen_trl.imitation.fine_tuning.example", spy)
    ready = demonstrations_from(ScriptedPolicy(half_right), LAKE, config(), CHAT, SEEDS)
    model, learning = build_tiny_model(TOKENIZER, hidden_size=32, num_layers=1), WarmStartConfig(demo_batch_size=4)
    folder = warm_start(model, TOKENIZER, LAKE, config(), learning, tmp_path / "m", ready)
    note = json.loads((folder / "warm_start.json").read_text())
    assert note == {"episodes": [len(ready)], "successes": [len(ready)], "updates": -(-len(ready) // 4)}
    assert seen == ready
