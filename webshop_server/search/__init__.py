"""Search: an index of one catalogue that ranks exactly as Lucene does, built once and mapped from a file.

`index` answers queries, `ranking` finds the best documents, `build` makes the arrays of an index, and
`catalog.array_file` keeps them in one file. This package imports text and catalog. The packages store and server may
import it.
"""
