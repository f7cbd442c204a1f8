"""Playing episodes: environments and a policy go in, whole trajectories come out. No module here loads torch.

`loop` plays, turn by turn. `interfaces` says what an environment and a policy are, `episode` is one episode in
progress, `chat` turns messages into token ids. `env_specs` says which environments a run has, `env_executor` steps them
side by side, `env_pool` keeps them between rollouts. `tasks`, `seeds` and `start_states` say which start states are
played.
"""

from typing import Any

__all__ = ["play"]


def __getattr__(name: str) -> Any:
    # On first use: what only needs a light module of this package loads no other.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ragen_trl.rollout.loop import play

    return play
