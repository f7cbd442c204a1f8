"""Pictures of environments: square tiles and text, drawings in SVG, and films of them.

Pillow and resvg_py are imported when a picture is first drawn with them.
"""
