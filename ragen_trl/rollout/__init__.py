"""Playing episodes: environments on one side, a policy on the other, whole trajectories out. No torch here.

`loop` takes the turns, `interfaces` says what an environment and a policy are, `episode` is one episode in progress,
`chat` turns messages into token ids, `env_executor` steps environments side by side, `seeds` and `start_states` say
where episodes start.

Imports: `trajectory`, `config` and `system`. No module here imports torch or a policy.
"""
