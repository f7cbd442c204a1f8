"""The store as a web server: `app` is the Flask application, `requests` reads what clients send, `sessions` keeps them.

`command` serves it with waitress. This is the top of the store: it may import every other package, and none imports it.
"""
