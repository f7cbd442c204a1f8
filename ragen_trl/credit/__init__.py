"""Who gets credit for a return: which groups are trained on, and with which advantages."""
