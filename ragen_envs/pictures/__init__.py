"""What pictures of several environments are made of: square tiles, text, and films.

May be imported by `text_env` and by any family. It imports nothing of this package. Pillow is imported when a picture
is first drawn with it.
"""
