"""The commands ``python -m ragen_trl {train,warm-start,eval,report,convert,smollm2}``."""
