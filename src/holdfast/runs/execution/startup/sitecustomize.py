"""Imported by Python before a program below `holdfast runs exec`: starts the recording."""

import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path


def _own_module() -> None:
    """Run the `sitecustomize` that would have been found without this one."""
    here = Path(__file__).parent.resolve()
    places = [each for each in sys.path if Path(each or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec(__name__, places)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules[__name__] = module
        spec.loader.exec_module(module)


if "HOLDFAST_EXEC_FOLDER" in os.environ:
    try:
        from holdfast.runs.execution.injected import start
    except ImportError:  # a Python that does not have holdfast, such as a tool's
        pass
    else:
        start()
_own_module()
