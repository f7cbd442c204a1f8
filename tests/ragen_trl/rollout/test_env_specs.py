"""The environments of a run: which they are, what is refused, and their names."""

import gymnasium

from ragen_trl.rollout.environments import EnvSpec, unique_names


def test_environments_of_one_id_have_names_that_tell_them_apart() -> None:
    lakes = [{"size": 4, "is_slippery": False}, {"size": 5, "is_slippery": False}, {"is_slippery": False}]
    specs = [EnvSpec("ragen/FrozenLake-v0", kwargs) for kwargs in lakes]
    names = ["FrozenLake-v0(size=4)", "FrozenLake-v0(size=5)", "FrozenLake-v0"]
    assert unique_names(specs) == names
    assert unique_names([EnvSpec("ragen/Bandit-v0", {}), *specs]) == ["Bandit-v0", *names]
    assert unique_names([EnvSpec(lambda: gymnasium.make("ragen/Bandit-v0")) for _ in range(2)]) == [
        *("<lambda>#0", "<lambda>#1")
    ]
