"""The trainers on top of TRL: wiring, no mathematics. Private members of TRL are used in the folder `trl` alone."""
