"""All that leans on the inside of TRL and of Transformers' trainer, under public names, held by contract tests."""
