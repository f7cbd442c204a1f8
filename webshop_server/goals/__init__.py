"""Goals, what a shopper is asked to buy, and what a purchase is worth. Imports catalog alone."""
