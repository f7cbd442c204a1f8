"""How results become the tables of the pages: functions from the JSON of a result to Markdown, a module a subject.

``tables.py`` says which function writes which table. Pure, with only the standard library; nothing here measures.
May import: nothing outside ``pages``. Imported by: ``tables.py`` and the tests.
"""
