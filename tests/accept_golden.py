"""Writes golden texts from a run, for scripts that no document stands behind.

    nox -s accept -- rainier/1 rainier/2

A text that is there already is shown with its first difference before it is written.
"""

import os
import sys
from pathlib import Path

from stages import catalogue, comparer, runner

DOCUMENTED = {"p15", "p16", "p17", "p18", "p19", "p20", "p26", "p27"}


def accept(script: catalogue.Script) -> str:
    """Write the golden text of `script`; return what was done, in one line or more.

    Raises SystemExit for a script whose output is fixed by a document, and for a run
    that fails or writes to stderr.
    """
    if script.project in DOCUMENTED:
        raise SystemExit(f"{script.id}: a document fixes this output; mend the script")
    program = script.path
    if script.is_extension:
        program = script.root / "solutions" / script.project / f"{script.name}.py"
    run = runner.run(program, options=["-X", "dev", "-W", "error"])
    if run.status != 0 or run.stderr:
        raise SystemExit(f"{script.id}: ended with {run.status}\n{run.stderr.decode()}")
    golden = script.golden
    done = f"{script.id}: written"
    if golden.exists():
        before = golden.read_bytes().decode()
        difference = comparer.first_difference(before, run.stdout.decode())
        if difference is None:
            return f"{script.id}: as it was"
        done += f"; it was another text before\n{comparer.explain(difference)}"
    golden.parent.mkdir(parents=True, exist_ok=True)
    golden.write_bytes(run.stdout)
    return done


def main(ids: list[str]) -> None:
    if os.environ.get("CI"):
        raise SystemExit("golden texts are not written in CI")
    if not ids:
        raise SystemExit("which scripts? for example: nox -s accept -- rainier/1")
    root = catalogue.find_root(Path(__file__).parent)
    for text in ids:
        print(accept(catalogue.resolve(root, text)))


if __name__ == "__main__":
    main(sys.argv[1:])
