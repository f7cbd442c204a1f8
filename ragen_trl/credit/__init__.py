"""Who gets credit for a return: which groups are trained on, and with which advantages.

`selection` filters groups, `estimators` computes the advantages of a rollout batch, `critic` is the value model of the
PPO variants and `critic_networks` its two possible networks.
"""
