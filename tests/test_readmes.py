"""Every command and every output block in the prose is true.

A ```console block is a session: each line that begins with `$ ` is run from the root,
and what follows it is its exact output. A ```sh block has commands without output.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages import catalogue, runner

ROOT = catalogue.find_root(Path(__file__).parent)
PROSE = sorted(
    path
    for pattern in ("*.md", "workshops/**/*.md", "solutions/**/*.md", "tests/**/*.md")
    for path in ROOT.glob(pattern)
)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> Iterator[tuple[Path, str]]:
    for path in PROSE:
        for found, body in BLOCK.findall(path.read_text(encoding="utf-8")):
            if found == language:
                yield path, body


def sessions() -> Iterator[tuple[str, str, str]]:
    """Yield (place, command, output) for each command of each console block."""
    for path, body in blocks("console"):
        for part in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield path.relative_to(ROOT).as_posix(), command, output


def command_lines() -> Iterator[tuple[str, str]]:
    """Yield (place, command) for each line of each sh block."""
    for path, body in blocks("sh"):
        for line in body.splitlines():
            if line and not line.startswith("#"):
                yield path.relative_to(ROOT).as_posix(), line


@pytest.mark.parametrize(
    ("command", "output"),
    [pytest.param(c, o, id=f"{place}: {c}") for place, c, o in sessions()],
)
def test_a_shown_session_is_what_happens(
    command: str, output: str, tmp_path: Path
) -> None:
    words = shlex.split(command)
    if words[0] in ("python", "python3"):
        words[:1] = [sys.executable]
    elif words[0] == "stages":
        words[:1] = [sys.executable, "-m", "stages"]
    else:
        pytest.fail(f"a command that this test does not know: {command}")
    done = subprocess.run(
        words,
        cwd=ROOT,
        env=runner.environment() | {"STAGES_MEMORY": str(tmp_path), "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
    )
    assert done.stdout.decode() == output


def nox_sessions() -> set[str]:
    source = (ROOT / "noxfile.py").read_text(encoding="utf-8")
    return set(re.findall(r"^@nox\.session.*\ndef (\w+)\(", source, re.MULTILINE))


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, id=f"{place}: {c}") for place, c in command_lines()],
)
def test_a_command_line_names_what_exists(command: str) -> None:
    for part in command.split("&&"):
        words = shlex.split(part)
        program = words[0].removeprefix(".venv/bin/")
        if program == "nox":
            if "-s" in words:
                name = words[words.index("-s") + 1]
                assert re.sub(r"-3\.\d+$", "", name) in nox_sessions()
        elif program in ("python", "python3") and not words[1].startswith("-"):
            assert (ROOT / words[1]).exists()
        elif program == "diff":
            assert all((ROOT / word).exists() for word in words[1:])
        elif program == "pytest":
            assert all((ROOT / word).exists() for word in words[1:] if "/" in word)
        else:
            assert part.strip() in ci_script() or program == "stages"


def ci_script() -> str:
    return (ROOT / ".ci" / "run").read_text(encoding="utf-8")


def test_ci_runs_the_second_command_of_the_readme_as_it_stands() -> None:
    first, second = (
        command for place, command in command_lines() if place == "README.md"
    )
    assert first == "python3 workshops/p27/stage2.py"
    assert second in ci_script().splitlines()


@pytest.mark.parametrize("path", PROSE, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), target


def test_a_project_readme_shows_each_of_its_stages() -> None:
    shown = {(place, command) for place, command, _ in sessions()}
    for script in catalogue.scripts(ROOT):
        if not script.is_extension:
            place = f"workshops/{script.project}/README.md"
            command = f"python workshops/{script.project}/{script.name}.py"
            assert (place, command) in shown


@pytest.mark.skipif(os.name == "nt", reason="git may write CRLF there")
def test_text_files_have_unix_line_ends() -> None:
    for pattern in ("*.py", "*.md", "*.out", "*.toml"):
        for folder in ("stages", "workshops", "tests", "solutions"):
            for path in (ROOT / folder).rglob(pattern):
                assert b"\r\n" not in path.read_bytes(), path
