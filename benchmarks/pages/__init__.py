"""How results become the tables of the pages: functions from the JSON of a result to Markdown, a module a subject.

``tables.py`` says which function writes which table. Pure; nothing here measures. May import: ``ragen_envs`` for the
interval of a share, ``records`` for what runs can be compared in, else only the standard library. Imported by:
``tables.py`` and the tests.
"""
