"""Goals and rewards: what a shopper is asked to buy, and what a purchase is worth.

`goals` makes and divides the tasks of a catalogue, `reward` scores a purchase by `nouns` among others, and `tiers` pays
on the way to one. This package imports catalog. The packages store and server may import it.
"""
