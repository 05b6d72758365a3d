"""Runs one script in a child process: the only place where that is done."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LIMIT = 10.0  # s


@dataclass(frozen=True)
class Run:
    """How a script ended. `status` is None when it ran out of time."""

    stdout: bytes
    stderr: bytes
    status: int | None
    seconds: float

    @property
    def timed_out(self) -> bool:
        return self.status is None


def environment() -> dict[str, str]:
    """Return our environment, with UTF-8 on and colour off for the child."""
    child = {
        name: value
        for name, value in os.environ.items()
        if name not in ("FORCE_COLOR", "CLICOLOR_FORCE", "PYTHONWARNINGS")
    }
    child |= {"PYTHONUTF8": "1", "PYTHON_COLORS": "0", "NO_COLOR": "1"}
    return child


def run(
    script: Path,
    *,
    options: Sequence[str] = (),
    python: str = sys.executable,
    folder: Path | None = None,
    limit: float = LIMIT,
    extra_environment: dict[str, str] | None = None,
) -> Run:
    """Run `script` with the interpreter `options` for at most `limit` s."""
    start = time.monotonic()
    child = subprocess.Popen(
        [python, *options, str(script)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=environment() | (extra_environment or {}),
        start_new_session=True,
    )
    with child:
        try:
            stdout, stderr = child.communicate(timeout=limit)
            status: int | None = child.returncode
        except subprocess.TimeoutExpired:
            child.kill()
            stdout, stderr = child.communicate()
            status = None
    return Run(stdout, stderr, status, time.monotonic() - start)
