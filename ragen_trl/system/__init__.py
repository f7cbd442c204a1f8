"""Files, terminal, versions and tensors: code that knows no environment, policy or trainer.

`atomic` writes files whole or not at all, `sqlite_file` opens SQLite files of a known format, `progress` and
`terminal` show progress and colour, `provenance` says where a number comes from (command, commit, versions), and
`old_names` keeps the import paths of version 0.1. `float64` makes tensors of that type on any device, `functions` finds
functions by name, `hashing` digests weights, and `shards` reads and writes weights that FSDP2 or DeepSpeed has divided.
"""
