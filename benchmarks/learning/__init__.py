"""What training questions are made of: tasks and variants as data, lessons, one run, its digest, what is measured.

A question is a script beside this folder. ``spec`` has the words, ``tasks`` what several questions share, ``run`` one
training run as a process, ``saved`` a model that plays again, ``store`` where a result is, ``runner`` and ``collect``
what is run and put together. ``student_reports`` has two trainers to compare with. May import: ``ragen_envs``,
``ragen_trl``. Imported by: the scripts, and ``measuring.updates`` for the peak of memory.
"""
