"""Playing episodes: environments and a policy go in, whole trajectories come out. No module here loads torch.

`loop` plays, turn by turn. `interfaces` says what an environment and a policy are, `episode` is one episode in
progress, `chat` turns messages into token ids. `env_executor` steps environments side by side, `env_pool` keeps them
between rollouts. `tasks`, `seeds` and `start_states` say which start states are played.

Imports: `trajectory`, `config` and `system`. Every package from `policies` on may import it.
"""
