"""The bridge to TRL: the tool environment by itself, and one step of TRL's own trainer with it."""

import functools
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from ragen_envs import AgentTurns, Bandit, FrozenLake, TextEnv
from ragen_envs.bridges import ToolEnvironment, trl_environment
from tests.support.ragen_envs.bridging import RULES, SMALL_LAKE
from tests.support.ragen_envs.toys import Switch


class Words(TextEnv):
    """Free text: any word ends the episode, and its length is the reward."""

    instruction = "Say a word."

    def _start(self, options: Any) -> str:
        return "?"

    def _parse_action(self, text: str) -> str | None:
        return text.strip() or None

    def _act(self, action: str) -> tuple[str, float, bool, dict[str, Any]]:
        return action, float(len(action)), True, {"success": True, "action_is_effective": True}


def test_a_game_by_tool_calls() -> None:
    tool = trl_environment(SMALL_LAKE, max_actions=3)()
    prompt = tool.reset(seed=0, prompt=[{"role": "user", "content": ""}], level="easy")
    assert prompt == f"{RULES}Call the tool act with one action at a time.\nState:\nP_\n_G\nActions left: 3"
    assert tool.act("right") == "Reward: 0\nState:\n_P\n_G\nActions left: 2"
    assert tool.act("Jump") == "Unknown action ignored. Use: Left, Down, Right, Up"
    assert (tool.get_reward(), tool.success, tool.actions_left) == (0.0, False, 2)
    assert tool.act("Down") == "Reward: 1\nState:\n__\n_√\nThe game is over. Call no more tools."
    assert tool.act("Up") == "The game is over. Call no more tools."
    assert (tool.get_reward(), tool.success, tool.actions_left) == (1.0, True, 1)
    assert tool.reset(seed=0) == prompt
    assert (tool.get_reward(), tool.success, tool.actions_left) == (0.0, False, 3)


def test_tool_calls_end_at_the_limit_and_before_the_start() -> None:
    tool = trl_environment(SMALL_LAKE, max_actions=2)()
    assert tool.act("Right") == "The game is over. Call no more tools."  # no reset yet
    tool.reset(seed=0)
    assert tool.act("Up").endswith("Actions left: 1")
    assert tool.act("Up") == "Reward: 0\nState:\nP_\n_G\nThe game is over. Call no more tools."
    assert not tool.success


def test_unknown_actions_take_no_steps_of_a_time_limit() -> None:
    """Regression: after 100 of them FrozenLake was over, and every action earned nothing without a word of it."""
    tool = trl_environment(functools.partial(SMALL_LAKE, max_episode_steps=3))()
    tool.reset(seed=0)
    assert {tool.act("Fly") for _ in range(5)} == {"Unknown action ignored. Use: Left, Down, Right, Up"}
    assert tool.act(" right ").endswith("Actions left: 2")
    assert tool.act("Down").startswith("Reward: 1\n") and tool.success


def test_a_limit_that_free_text_reaches_ends_the_game() -> None:
    """No list says which texts are actions, so that the environment gets them all."""
    tool = trl_environment(lambda: gymnasium.wrappers.TimeLimit(Words(), 2))()
    tool.reset(seed=0)
    assert tool.act(" ") == "Unknown action ignored."
    assert tool.act(" ") == "Unknown action ignored. The game is over. Call no more tools."
    assert tool.act("word") == "The game is over. Call no more tools."
    assert (tool.get_reward(), tool.actions_left) == (0.0, 0)


def test_arguments_of_another_type_and_free_text_are_data() -> None:
    tool = trl_environment(Words)()
    assert "Actions:" not in tool.reset(seed=0)
    assert tool.act("") == "Unknown action ignored."
    tool.act(12345)  # type: ignore[arg-type]
    assert tool.get_reward() == 5.0


def test_a_group_shares_the_start_and_not_the_luck() -> None:
    group = [make() for make in [trl_environment(Bandit)] * 64]
    assert len({tool.reset(seed=7) for tool in group}) == 1
    shown = {tool.act("Dragon").splitlines()[0] for tool in group}
    assert shown == {"Reward: 0", "Reward: 1"}


def outcomes(make: Callable[[], ToolEnvironment], members: int = 4, episodes: int = 8) -> list[float]:
    """The reward of the risky arm in every episode of every member."""
    group = [make() for _ in range(members)]
    paid = []
    for _ in range(episodes):
        for tool in group:
            tool.reset(seed=7)
            tool.act("Dragon")
            paid.append(tool.get_reward())
    return paid


def test_outcomes_are_repeatable_and_differ_by_seed_and_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = outcomes(trl_environment(Bandit))
    assert outcomes(trl_environment(Bandit)) == first
    assert outcomes(pickle.loads(pickle.dumps(trl_environment(Bandit)))) == first  # as AsyncGRPO does
    assert outcomes(trl_environment(Bandit, outcome_seed=1)) != first
    monkeypatch.setenv("RANK", "1")
    assert outcomes(trl_environment(Bandit)) != first


def test_limits_are_those_of_ragen() -> None:
    assert trl_environment("ragen/Countdown-v0")().reset(seed=0).endswith("Actions left: 1")
    assert trl_environment("ragen/FrozenLake-v0")().reset(seed=np.int64(0)).endswith("Actions left: 10")
    shop = functools.partial(gymnasium.make, "ragen/WebShop-v0", catalog="toy")
    assert trl_environment(shop)().reset(seed=0).endswith("Actions left: 9")


def test_without_ragens_number_the_limit_is_that_of_the_commands(tmp_path: Path) -> None:
    """Regression: it was 10, also for a file of levels and for an id with a time limit."""
    levels = tmp_path / "levels.txt"
    levels.write_text("#####\n#@$.#\n#####\n")
    sokoban = functools.partial(gymnasium.make, "ragen/Sokoban-v0", levels=str(levels))
    assert trl_environment(sokoban)().reset(seed=0).endswith("Actions left: 200")
    gymnasium.register("test/Lake25-v0", "ragen_envs:FrozenLake", max_episode_steps=25)
    assert trl_environment("test/Lake25-v0")().reset(seed=0).endswith("Actions left: 25")
    assert trl_environment(FrozenLake)().reset(seed=0).endswith("Actions left: 10")


def test_an_id_may_name_its_module() -> None:
    """Regression: it was looked up with the module in its name, and not found."""
    assert "Actions: " in trl_environment("ragen_envs:ragen/Bandit-v0")().reset(seed=1)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        trl_environment("no_such_module:ragen/Bandit-v0")


def test_mistakes_are_named() -> None:
    with pytest.raises(gymnasium.error.Error, match="Nope"):
        trl_environment("ragen/Nope-v0")
    with pytest.raises(ValueError, match="is a single environment; pass its id"):
        trl_environment(gymnasium.make("ragen/Bandit-v0"))()  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"seed=1\.5 must be an integer"):
        trl_environment(Bandit)().reset(seed=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_actions=0"):
        trl_environment(Bandit, max_actions=0)
    with pytest.raises(ValueError, match="must be a TextEnv without AgentTurns"):
        trl_environment(lambda: AgentTurns(SMALL_LAKE()))()
    with pytest.raises(ValueError, match="Switch.* must be a TextEnv"):
        trl_environment(Switch)()
    with pytest.raises(ValueError, match=r"row \['level'\] has no seed; give the dataset a column 'seed'"):
        trl_environment(Bandit)().reset(level=3)


@dataclass
class Played:
    """The results of one step of TRL's trainer."""

    trainer: Any
    prompts: list[str]
    moved: bool


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """One step of a GRPOTrainer with two groups of two. The first member of each wins, the second makes mistakes."""
    pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import Qwen2Config, Qwen2ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    from tests.support.ragen_trl.chat_families import FAMILIES

    tokenizer = FAMILIES["qwen2_5"].tokenizer()
    tokenizer.pad_token = "<|endoftext|>"
    call = '<tool_call>\n{{"name": "{}", "arguments": {{{}}}}}\n</tool_call><|im_end|>'
    scripts = [
        [call.format("act", '"action": "Right"'), call.format("act", '"action": "Down"'), "Won.<|im_end|>"],
        [call.format("act", '"action": "Fly"'), call.format("step", '"a": 1'), call.format("act", '"b": 1'), "?"],
    ]
    prompts: list[list[str]] = []

    class Scripted(GRPOTrainer):  # type: ignore[misc, unused-ignore]
        """A script replies instead of the model, which has learnt nothing."""

        def _generate_single_turn(self, prompt_ids: Any, *rest: Any, **more: Any) -> Any:
            turn = len(prompts)
            prompts.append([tokenizer.decode(ids) for ids in prompt_ids])
            alive = [script for script in scripts * 2 if turn < len(script)]
            return [tokenizer.encode(script[turn], add_special_tokens=False) for script in alive], None

    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, **sizes))
    rows = {"prompt": [[{"role": "user", "content": ""}]] * 2, "seed": [10_000, 10_001]}
    sampled = {"per_device_train_batch_size": 4, "num_generations": 2, "max_completion_length": 2000}
    quiet = {"save_strategy": "no", "report_to": "none", "disable_tqdm": True}
    here = {"output_dir": str(tmp_path_factory.mktemp("run")), "use_cpu": True, "bf16": False}
    args = GRPOConfig(max_steps=1, learning_rate=0.1, gradient_checkpointing=False, **sampled, **quiet, **here)
    factory = trl_environment(SMALL_LAKE)
    trainer = Scripted(
        model, train_dataset=Dataset.from_dict(rows), processing_class=tokenizer, environment_factory=factory, args=args
    )
    before = model.model.layers[0].self_attn.q_proj.weight.detach().clone()
    trainer.train()
    after = model.model.layers[0].self_attn.q_proj.weight
    return Played(trainer, ["\n".join(texts) for texts in prompts], not before.equal(after))


def test_trl_makes_one_tool_and_its_schema(played: Played) -> None:
    from transformers.utils import get_json_schema

    assert [tool.__name__ for tool in played.trainer.tools] == ["act"]
    function = get_json_schema(trl_environment(Bandit)().act)["function"]
    assert function["name"] == "act" and function["parameters"]["required"] == ["action"]
    assert function["parameters"]["properties"]["action"]["type"] == "string"
    assert '"name": "act", "description": "Carry out one action of the game' in played.prompts[0]


def test_trl_shows_the_task_and_the_answers_of_the_tool(played: Played) -> None:
    first, second, third, fourth = played.prompts
    assert f"<|im_start|>user\n{RULES}Call the tool act with one action at a time.\nState:\nP_\n_G\n" in first
    assert "<tool_response>\nReward: 0\nState:\n_P\n_G\nActions left: 9\n</tool_response>" in second
    assert "<tool_response>\nUnknown action ignored. Use: Left, Down, Right, Up\n</tool_response>" in second
    assert "Reward: 1\nState:\n__\n_√\nThe game is over. Call no more tools." in third
    assert "Tool step not found" in third and "unexpected keyword argument 'b'" in fourth  # TRL's words


def test_trl_takes_the_reward_from_the_environment_and_learns(played: Played) -> None:
    log = played.trainer.state.log_history[0]
    assert played.trainer.reward_func_names == ["ToolEnvironment"]
    assert (log["rewards/ToolEnvironment/mean"], log["frac_reward_zero_std"]) == (0.5, 0.0)
    assert log["tools/call_frequency"] == (2 + 3) / 2 and played.moved
    assert [tool.success for tool in played.trainer.environments] == [True, False] * 2
