"""Runs each script many times beside busy processes and compares every run.

    nox -s soak -- 200             200 runs of each script
    nox -s soak -- 200 p15/1 p27   of some scripts, or of all of a project

The hash seed changes with each run, and every third run has asyncio's debug mode on.
One run that differs, or writes to stderr, is a failure.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from stages import catalogue, comparer, runner

RUNS = 3
BUSY = 4  # processes
BUSY_LOOP = "while True: pass"


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep `processes` processes busy for as long as the block lasts."""
    busy = [
        subprocess.Popen([sys.executable, "-c", BUSY_LOOP]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def program(script: catalogue.Script) -> Path:
    """Return what prints the golden text: the stage, or an extension's solution."""
    if script.is_extension:
        return script.root / "solutions" / script.project / f"{script.name}.py"
    return script.path


def fault(script: catalogue.Script, number: int) -> str | None:
    """Run `script` for the time number `number`; return what was wrong, or None."""
    run = runner.run(
        program(script),
        options=["-X", "dev", "-W", "error"],
        limit=120,
        extra_environment={
            "PYTHONHASHSEED": str(number + 1),
            "PYTHONASYNCIODEBUG": "1" if number % 3 == 0 else "",
        },
    )
    if run.status != 0 or run.stderr:
        return f"ended with {run.status}\n{run.stderr.decode(errors='replace')}"
    expected = script.golden.read_bytes()
    if run.stdout == expected:
        return None
    difference = comparer.first_difference(
        expected.decode(), run.stdout.decode(errors="replace")
    )
    return "differs" if difference is None else comparer.explain(difference)


def chosen(root: Path, words: list[str]) -> list[catalogue.Script]:
    """Return the scripts that the words name; without words, all that have a text."""
    projects = {script.project for script in catalogue.scripts(root)}
    scripts = []
    for word in words:
        if word in projects:
            scripts += catalogue.scripts(root, word)
        else:
            scripts.append(catalogue.resolve(root, word))
    return [s for s in scripts or catalogue.scripts(root) if program(s).exists()]


def main(words: list[str]) -> int:
    runs = int(words.pop(0)) if words and words[0].isdecimal() else RUNS
    scripts = chosen(catalogue.find_root(Path(__file__).parent), words)
    start = time.monotonic()
    faults = 0
    with load(BUSY), ThreadPoolExecutor(os.cpu_count()) as pool:
        for script in scripts:
            results = pool.map(lambda n, s=script: fault(s, n), range(runs))
            wrong = [text for text in results if text is not None]
            faults += len(wrong)
            print(f"{script.id}: {runs - len(wrong)} of {runs} runs as they should be")
            if wrong:
                print(wrong[0])
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        f"Python {version}: {len(scripts)} scripts, {runs} runs each beside {BUSY} "
        f"busy processes, {faults} faults, {time.monotonic() - start:.0f} s"
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
