"""How results become the tables of the pages: functions from the JSON of a result to Markdown, a module a subject.

``tables.py`` says which function writes which table. Nothing here measures or trains. May import: ``ragen_envs`` and
``ragen_trl`` for intervals and the names of options, and ``records``, ``agents`` and ``findings`` for what results
hold. Imported by: ``tables.py`` and the tests.
"""
