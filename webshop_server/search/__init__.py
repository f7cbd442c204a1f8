"""Search: an index of one catalogue that ranks exactly as Lucene does. Imports text and catalog alone."""
