"""The trainers on top of TRL: wiring, no mathematics.

`rollout` plays episodes and has TRL score them, `trajectory` leads from a rollout to a loss through four hooks, and
`starpo` fills the hooks; `reference` is a policy at one moment. All code here that depends on a private member of TRL
or Transformers is in the folder `trl`.
"""
