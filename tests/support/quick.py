"""What makes many small trainings in one process quick, and changes nothing that they compute."""

import functools
import gc

from accelerate.utils import imports


def libraries_are_settled() -> None:
    """All libraries are imported now: nobody has to search their objects, or ask again which packages there are.

    Every training run begins with ``gc.collect()`` (Accelerate), which took half of a small run's time; what libraries
    hold lives as long as the process. And it asks some thirty times whether DeepSpeed and PEFT are installed.
    """
    gc.collect()
    gc.freeze()
    imports._is_package_available = functools.cache(imports._is_package_available)
