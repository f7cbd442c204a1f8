"""What pictures of several environments are made of: square tiles, and text. `frames` gives them one size.

`svg` draws what comes as SVG, `film` joins pictures to a moving one, `descriptions` judges what a model says that it
sees.

May be imported by `text_env` and by any family. It imports nothing of this package. Pillow is imported when a picture
is first drawn with it, and resvg_py for drawings in SVG.
"""
