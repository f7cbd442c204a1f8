"""A warm start for models that see: supervised steps on episodes that a script played, pictures included.

TRL's ``SFTTrainer``, which the package's warm start uses, takes no token ids with pictures; so this is a plain loop.
"""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from ragen_trl.batching.batch import collate
from ragen_trl.batching.pictures import picture_inputs
from ragen_trl.config.starpo import StarPOConfig
from ragen_trl.imitation.demonstrations import in_tokens_of
from ragen_trl.policies.scripted import ScriptedPolicy
from ragen_trl.policies.vision.processing import PictureProcessor
from ragen_trl.rollout.chat import Chat
from ragen_trl.rollout.env_pool import EnvPool, EnvSpec
from ragen_trl.rollout.interfaces import Start
from ragen_trl.trajectory import Trajectory


def demonstrated(
    script: ScriptedPolicy, spec: EnvSpec, args: StarPOConfig, chat: Chat, seeds: Sequence[int]
) -> list[Trajectory]:
    """Episodes of a script, in the tokens that the model would have sampled."""
    pool = EnvPool(args)
    played = pool.play(pool.take([spec] * len(seeds)), script, [Start(seed, seed, seed) for seed in seeds])
    pool.close()
    told = [in_tokens_of(chat, trajectory) for trajectory in played]
    return [trajectory for trajectory in told if trajectory is not None]


def imitate(
    model: PreTrainedModel,
    episodes: Sequence[Trajectory],
    processor: PictureProcessor,
    steps: int,
    learning_rate: float = 3e-3,
    batch_size: int = 16,
    seed: int = 0,
) -> list[float]:
    """Train on the replies of episodes; returns the loss of each step, in nats a token."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.0)
    random = torch.Generator().manual_seed(seed)
    losses = []
    model.train()
    for _ in range(steps):
        chosen = torch.randperm(len(episodes), generator=random)[:batch_size].tolist()
        batch = [episodes[index] for index in chosen]
        rows = collate(batch, processor.pad_id)
        ids, attention = rows["input_ids"], rows["attention_mask"]
        tokens, seen = picture_inputs(ids, attention, [one.pictures for one in batch], processor)
        seen.pop("num_images", None)
        logits = model(input_ids=tokens, attention_mask=attention, **seen).logits[:, :-1]
        asked = rows["action_mask"][:, 1:].bool()
        loss = torch.nn.functional.cross_entropy(logits[asked], ids[:, 1:][asked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses
