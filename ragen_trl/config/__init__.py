"""Options, each declared once as a dataclass field with its range and its help, and their checks."""
