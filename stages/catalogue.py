"""Finds the projects, their scripts and everything that lies at mirrored paths.

Nothing is registered: a project is a folder below workshops/, a script is a file
stageN.py or extN.py in it, and a title is the first line of a docstring.
"""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

SCRIPT_NAME = re.compile(r"(stage|ext)([1-9][0-9]*)")
TITLE = re.compile(r"(?:Stage|Extension) [0-9]+: (.+)")


class CatalogueError(Exception):
    """What was asked for is not in the workbook. The text says so in one line."""


@dataclass(frozen=True)
class Script:
    """One stage or extension, such as p27/stage2."""

    root: Path
    project: str
    name: str

    @property
    def id(self) -> str:
        return f"{self.project}/{self.name}"

    @property
    def is_extension(self) -> bool:
        return self.name.startswith("ext")

    @property
    def number(self) -> int:
        return int(self.name.removeprefix("ext").removeprefix("stage"))

    @property
    def path(self) -> Path:
        return self.root / "workshops" / self.project / f"{self.name}.py"

    @property
    def golden(self) -> Path:
        return self.root / "tests" / "golden" / self.project / f"{self.name}.out"

    @property
    def title(self) -> str:
        """The title in the first line of the docstring, or the name without one."""
        try:
            docstring = ast.get_docstring(ast.parse(self.path.read_bytes()))
        except (OSError, SyntaxError, ValueError):
            return self.name
        match = TITLE.match(docstring or "")
        return match[1] if match else self.name


def find_root(start: Path | None = None) -> Path:
    """Return the workbook that holds the folder `start`, or this program.

    Raises CatalogueError when neither is inside a workbook.
    """
    for place in (start or Path.cwd(), Path(__file__).parent):
        for folder in (place, *place.parents):
            if (folder / "workshops").is_dir() and (folder / "stages").is_dir():
                return folder.resolve()
    raise CatalogueError("no workbook here: there is no folder `workshops` above")


def scripts(root: Path, project: str | None = None) -> list[Script]:
    """Return all scripts, or those of `project`: projects by name, stages first."""
    found = [
        Script(root, path.parent.name, path.stem)
        for path in (root / "workshops").glob("*/*.py")
        if SCRIPT_NAME.fullmatch(path.stem)
    ]
    if project is not None:
        found = [script for script in found if script.project == project]
    return sorted(
        found, key=lambda script: (script.project, script.is_extension, script.number)
    )


def resolve(root: Path, text: str) -> Script:
    """Return the script that `text` means: p27/2, p27/stage2, or a path to it.

    Raises CatalogueError with the nearest real ones when there is no such script.
    """
    known = {script.id: script for script in scripts(root)}
    parts = text.replace("\\", "/").removesuffix(".py").rstrip("/").split("/")
    name = parts[-1]
    if name.isdecimal():
        name = f"stage{int(name)}"
    wanted = "/".join([*parts[-2:-1], name])
    if wanted in known:
        return known[wanted]
    raise CatalogueError(f"no script {text}; there is: {', '.join(known)}")
