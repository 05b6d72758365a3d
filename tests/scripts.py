"""Imports the scripts of the workbook, for tests that drive them."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent


def load_script(path: str) -> ModuleType:
    """Import a script by its path below the root, such as workshops/p15/stage1.py.

    Each call gives a module of its own, so a test can change it.
    """
    name = path.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(name, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by its name
    spec.loader.exec_module(module)
    return module
