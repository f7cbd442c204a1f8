"""What the results of the training questions say about the findings of the papers: claims as data, verdicts computed.

``intervals`` has the statistics, ``measures`` what is read from a run, ``claims`` the words a claim is made of,
``verdicts`` what the results say of one, ``matched`` the rankings at equal cost, ``signs`` what turns before a drop;
``ragen``, ``ragen_play``, ``ragen2``, ``credit`` and ``astar_po`` have the claims. ``published`` has the papers'
figures as numbers; ``pictures``, ``sign_pictures`` and ``series_pictures`` draw, in the ``looks`` that they share.
Functions on the committed JSON; nothing here trains. May import: ``ragen_envs``, ``ragen_trl``, ``learning``,
``records``. Imported by: ``claims.py`` and ``plot.py``.
"""
