"""The store without a network: which page a shopper sees, what an action does, and the pages as text and as HTML.

`state` is the state machine of pages, `page_text` and `page_html` write what is on one, and `shop` adds goals and
rewards to make an episode. Everything here is pure. This package imports search, goals and what is below.
"""
