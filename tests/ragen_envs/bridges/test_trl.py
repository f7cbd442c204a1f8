"""The bridge to TRL: the tool environment by itself, and one step of TRL's own trainer with it."""

from typing import Any, NamedTuple

import pytest

from ragen_envs import Bandit, trl_environment
from tests.support.ragen_envs.bridging import RULES, SMALL_LAKE


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


def test_each_process_has_its_own_outcomes_which_are_the_same_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    plays = []
    for rank in ("0", "1", "1"):
        monkeypatch.setenv("RANK", rank)
        tool = trl_environment("ragen/FrozenLake-v0")()
        plays.append([(tool.reset(seed=seed), tool.act("Down"), tool.act("Right")) for seed in range(10)])
    assert [start for start, *_ in plays[0]] == [start for start, *_ in plays[1]]
    assert plays[0] != plays[1] == plays[2]


def test_free_text_that_is_no_action_does_not_count() -> None:
    tool = trl_environment("ragen/Countdown-v0", max_actions=3)()
    tool.reset(seed=0)
    assert tool.act("1 +") == "Unknown action ignored."
    assert (tool.actions_left, tool.get_reward()) == (3, 0.0)
    assert tool.act("1").endswith("The game is over. Call no more tools.") and tool.actions_left == 2


class Played(NamedTuple):
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
