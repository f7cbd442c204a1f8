"""Success on fixed, held-out start states, with confidence intervals and pass@k."""
