"""The store as a web server: the Flask application, its two sets of routes, sessions, metrics and the command.

`app` puts the application together, `api` and `routes` answer requests, `validation` reads what clients send, and
`command` serves the application. This is the top of the store: it may import every other package, and none imports it.
"""
