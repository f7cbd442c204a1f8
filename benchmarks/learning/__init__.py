"""What ``learning_curves.py`` is made of: tasks and variants as data, one run, what is measured, what is shown."""
