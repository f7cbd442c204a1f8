"""The critic's networks and their folder: the policy beside them stays as it was, and a saved critic goes on."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import IA3Config, LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForTokenClassification, CohereConfig, CohereForCausalLM
from trl.trainer.utils import add_fused_lm_head

from ragen_trl.batching.batch import collate
from ragen_trl.credit.critic import Critic
from ragen_trl.credit.critic_networks import AdapterNetwork, CriticError, SeparateNetwork
from tests.support.ragen_trl.critics import LORA, PAD, episodes, lesson, lora_policy, make_critic, no_bootstrap, weights
from tests.support.ragen_trl.trainers import small_model

POLICIES = {"model": small_model, "adapter": lambda: lora_policy(warm=True)}
ROWS = episodes(4)
BATCH = collate(ROWS, PAD)


@pytest.fixture(params=POLICIES)
def build(request: pytest.FixtureRequest) -> Any:
    """Makes a policy, the same each time."""
    return POLICIES[request.param]


def logits(policy: Any) -> torch.Tensor:
    with torch.no_grad():
        result: torch.Tensor = policy(BATCH["input_ids"], attention_mask=BATCH["attention_mask"]).logits
    return result


def study(critic: Critic, times: int = 3) -> None:
    for seed in range(times):
        critic.update(ROWS, **lesson(ROWS, seed), clip=0.5)
        critic.values(ROWS, no_bootstrap(ROWS))


def state(policy: PeftModel) -> dict[str, Any]:
    """All about a policy that a critic's call could spoil."""
    own = list(policy.named_parameters())
    return {
        "adapters": list(policy.peft_config),
        "active": [policy.active_adapter, policy.active_adapters],
        "trainable": [name for name, value in own if value.requires_grad],
        "gradients": [name for name, value in own if value.grad is not None],
        "values": {name: value.detach().clone() for name, value in policy.state_dict().items()},
        "training": {name: module.training for name, module in policy.named_modules()},
    }


SETTINGS: list[dict[str, Any]] = [
    {},
    {"use_dora": True},
    {"use_rslora": True, "target_modules": "all-linear"},
    {"modules_to_save": ["embed_tokens"]},
    {"bias": "all"},
    {"init_lora_weights": "pissa"},
    {"lora_dropout": 0.5},
]


# PEFT's advice on adapters of tied embeddings, which one of these policies has on purpose.
@pytest.mark.filterwarnings("ignore:Model has `tie_word_embeddings=True`:UserWarning")
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_a_policy_with_an_adapter_does_not_notice_the_critic(settings: dict[str, Any], training: bool) -> None:
    policy = lora_policy(warm=True, **settings).train(training)
    before, said = state(policy), logits(policy.eval())
    policy.train(training)
    critic = make_critic(policy)
    study(critic)
    after = state(policy)
    old, new = before.pop("values"), after.pop("values")
    assert old.keys() == new.keys()
    assert all(torch.equal(old[name], new[name]) for name in old)
    assert after == before
    assert torch.equal(logits(policy.eval()), said)
    assert sum(value.numel() for value in critic.network.parameters) < 20_000  # no second base


def test_a_critic_that_fails_leaves_the_policy_as_it_was() -> None:
    policy = lora_policy(warm=True)
    critic = make_critic(policy)
    before, said = state(policy), logits(policy)
    with pytest.raises(RuntimeError, match="in the middle"), critic.network.active(training=True):
        raise RuntimeError("in the middle")
    after = state(policy)
    assert (before.pop("values").keys(), before) == (after.pop("values").keys(), after)
    assert torch.equal(logits(policy), said)


def test_a_separate_critic_shares_nothing_with_the_policy() -> None:
    policy = small_model()
    add_fused_lm_head(policy)  # TRL replaces the forward of the causal model; the critic reads below it
    before = {name: value.detach().clone() for name, value in policy.named_parameters()}
    critic = make_critic(policy)
    study(critic)
    assert all(torch.equal(value, before[name]) for name, value in policy.named_parameters())
    assert not torch.equal(critic.network.backbone.embed_tokens.weight, policy.model.embed_tokens.weight)


def test_an_adapter_critic_reads_with_the_policy_s_own_adapter_at_first() -> None:
    policy = lora_policy(warm=True)
    with torch.no_grad():
        hidden = policy.get_base_model().model(BATCH["input_ids"], attention_mask=BATCH["attention_mask"])
    critic = make_critic(policy)
    values, _ = critic.values(ROWS, no_bootstrap(ROWS))
    expected = critic.network.head(hidden.last_hidden_state).squeeze(-1).detach()
    shifted = torch.nn.functional.pad(expected[:, :-1], (1, 0)) * BATCH["attention_mask"]
    torch.testing.assert_close(values, shifted, rtol=0, atol=1e-5)


def test_every_part_of_the_critic_is_trained(build: Any) -> None:
    critic = make_critic(build(), weight_decay=0.0)
    before = weights(critic)
    study(critic, times=2)
    assert all(not torch.equal(old, new) for old, new in zip(before, weights(critic), strict=True))


def test_a_policy_is_exported_without_the_critic(tmp_path: Path) -> None:
    policy = lora_policy(warm=True)
    policy.save_pretrained(tmp_path / "before")
    study(make_critic(policy))
    policy.save_pretrained(tmp_path / "after")
    before, after = (tmp_path / name for name in ("before", "after"))
    assert [path.name for path in after.rglob("*")] == [path.name for path in before.rglob("*")]
    first, second = (load_file(folder / "adapter_model.safetensors") for folder in (before, after))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    loaded = PeftModel.from_pretrained(small_model(), str(after))
    assert torch.equal(logits(loaded), logits(policy))
    merged = logits(policy.merge_and_unload())
    torch.testing.assert_close(merged, logits(loaded), rtol=1e-4, atol=1e-4)


def test_a_saved_critic_goes_on_as_if_it_had_not_stopped(build: Any, tmp_path: Path) -> None:
    critic = make_critic(build())
    study(critic)
    critic.save(tmp_path / "critic")
    resumed = make_critic(build(), awake=False)
    resumed.load(tmp_path / "critic")
    for one in (critic, resumed):
        one.update(ROWS, **lesson(ROWS, seed=9), clip=0.5)
    assert all(torch.equal(old, new) for old, new in zip(weights(critic), weights(resumed), strict=True))
    critic.save(tmp_path / "critic")  # takes the place of the older one
    resumed.load(tmp_path / "critic")
    assert [path.name for path in tmp_path.iterdir()] == ["critic"]


def test_transformers_reads_a_separate_critic(tmp_path: Path) -> None:
    critic = make_critic(small_model())
    study(critic)
    critic.save(tmp_path / "critic")
    model = AutoModelForTokenClassification.from_pretrained(tmp_path / "critic")
    values, _ = critic.values(ROWS, no_bootstrap(ROWS))
    with torch.no_grad():
        output = model(BATCH["input_ids"], attention_mask=BATCH["attention_mask"]).logits.squeeze(-1)
    shifted = torch.nn.functional.pad(output[:, :-1], (1, 0)) * BATCH["attention_mask"]
    torch.testing.assert_close(values, shifted, rtol=0, atol=1e-5)


def test_transformers_does_not_take_a_saved_critic_for_an_adapter_of_the_policy(tmp_path: Path) -> None:
    """Its trainer loads, on resuming, what lies in ``<checkpoint>/<folder>/adapter_model.safetensors``."""
    critic = make_critic(lora_policy())
    critic.save(tmp_path / "critic")
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("adapter_model.safetensors")}
    assert files == {"critic/critic/adapter_model.safetensors"}


def test_a_folder_that_holds_no_fitting_critic_is_refused(tmp_path: Path) -> None:
    separate, adapter = make_critic(small_model()), make_critic(lora_policy())
    with pytest.raises(CriticError, match="holds no critic"):
        separate.load(tmp_path / "nothing")
    separate.save(tmp_path / "critic")
    with pytest.raises(CriticError, match="kind 'model'.*kind 'adapter'"):
        adapter.load(tmp_path / "critic")
    adapter.save(tmp_path / "adapter")
    with pytest.raises(CriticError, match="LoRA settings"):
        make_critic(lora_policy(r=2)).load(tmp_path / "adapter")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    with pytest.raises(CriticError, match="not a critic"):
        separate.save(tmp_path / "notes")
    assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"


def test_a_save_that_fails_leaves_the_older_critic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    critic = make_critic(small_model())
    critic.save(tmp_path / "critic")
    expected = weights(critic)
    study(critic)

    def full_disk(*args: Any) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space"):
        patch.setattr(torch, "save", full_disk)
        critic.save(tmp_path / "critic")
    with pytest.raises(CriticError, match="holds no critic"):
        critic.load(tmp_path / "critic.partial")
    critic.load(tmp_path / "critic")
    assert all(torch.equal(old, new) for old, new in zip(expected, weights(critic), strict=True))
    critic.save(tmp_path / "critic")
    assert json.loads((tmp_path / "critic" / "critic.json").read_text())["kind"] == "model"


def test_dropout_is_off_in_an_update() -> None:
    """The policy's own, the adapter's and that of transformers' classifier head (0.1 unless set)."""
    results = []
    for seed in (0, 1):
        model = small_model().train()
        for layer in model.model.layers:
            layer.self_attn.attention_dropout = 0.5
        policy = get_peft_model(model, LoraConfig(**{**LORA, "lora_dropout": 0.5})).train()
        for name, value in policy.named_parameters():
            if "lora_A" in name:
                torch.nn.init.ones_(value)
        separate, adapter = make_critic(small_model()), make_critic(policy)
        torch.manual_seed(seed)
        study(separate, times=2)
        study(adapter, times=2)
        results.append([*weights(separate), *weights(adapter)])
    assert all(torch.equal(first, second) for first, second in zip(*results, strict=True))


def test_gradient_checkpointing_computes_twice_and_learns_the_same(build: Any) -> None:
    learnt, calls = [], []
    for checkpointing in (False, True):
        policy = build()
        if checkpointing:
            policy.gradient_checkpointing_enable({"use_reentrant": False})
            policy.enable_input_require_grads()
        critic = make_critic(policy, gradient_checkpointing=checkpointing)
        seen: list[int] = []
        attention = critic.network.backbone.layers[0].self_attn
        attention.register_forward_hook(lambda *_, seen=seen: seen.append(1))
        critic.update(ROWS, **lesson(ROWS), clip=0.5)
        calls.append(len(seen))
        learnt.append(weights(critic))
    assert calls == [1, 2]
    for plain, recomputed in zip(*learnt, strict=True):
        torch.testing.assert_close(plain, recomputed, rtol=1e-5, atol=1e-7)


def test_a_policy_without_a_critic_is_named_with_the_way_out() -> None:
    config = CohereConfig(
        vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, pad_token_id=0
    )
    device = torch.device("cpu")
    with pytest.raises(CriticError, match="'cohere'.*LoRA"):
        SeparateNetwork(CohereForCausalLM(config), device, gradient_checkpointing=False)
    settings = IA3Config(target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"])
    with pytest.raises(CriticError, match="IA3.*LoRA"):
        AdapterNetwork(get_peft_model(small_model(), settings), device)
    policy = lora_policy()
    policy.add_adapter("critic", LoraConfig(**LORA))
    with pytest.raises(CriticError, match="another name"):
        AdapterNetwork(policy, device)


def test_a_frozen_reference_adapter_may_stand_beside_the_critic() -> None:
    """As TRL adds one to a policy that comes with an adapter."""
    policy = lora_policy(warm=True)
    policy.add_adapter("ref", policy.peft_config["default"])
    before = state(policy)
    study(make_critic(policy))
    after = state(policy)
    before.pop("values"), after.pop("values")
    assert after == before
    assert after["adapters"] == ["default", "ref"]
