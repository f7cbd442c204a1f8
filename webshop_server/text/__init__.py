"""Text as the search sees it: words by UAX #29, Porter's stems and the analyzer made of both, exactly as Lucene's.

Nothing here knows what a product is. It imports nothing else of the store, and every other package may import it.
"""
