"""What touches the machine and knows nothing of training.

Files that are written whole or not at all, SQLite files of a known format, progress bars, colour on a terminal, and
where a number comes from (command, commit, versions).

Imports: the standard library and small libraries; nothing of this package but `errors`.
"""
