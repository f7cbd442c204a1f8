"""The trainers on top of TRL: wiring, no mathematics.

`rollout` plays and has TRL score what was played, `trajectory` goes from what was sampled to a loss by four hooks,
`starpo` fills the hooks. All that leans on a private member of TRL or Transformers is in `trl_adapter`.

Imports: everything above it in the flow of data (`rollout`, `policies`, `batching`, `credit`).
"""
