"""Files, terminal, versions and tensors: code that knows no environment, policy or trainer."""
