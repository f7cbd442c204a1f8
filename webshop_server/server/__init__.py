"""The store as a web server: `app` is the Flask application, `sessions` keeps sessions. Imports all of the store."""
