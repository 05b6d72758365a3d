"""Writes the paused clock into every script that embeds it.

    nox -s clock

The text is stages/paused_clock.py from its line of dashes on; it replaces whatever
stands between the same line and the last `if __name__` of a script.
"""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DASHES = "# ---------------------------------------------------------------- "
FIRST_LINE = DASHES + "the paused clock\n"
LAST_LINES = '\n\nif __name__ == "__main__":\n'


def clock_text() -> str:
    text = (ROOT / "stages" / "paused_clock.py").read_text(encoding="utf-8")
    return text[text.index(FIRST_LINE) :]


def embedding_scripts() -> list[Path]:
    """Return all scripts with the clock: stages, stubs, solutions, other answers."""
    folders = ("workshops", "solutions", "tests/accepted", "tests/broken")
    return sorted(
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*.py")
        if FIRST_LINE in path.read_text(encoding="utf-8")
    )


def embed(script: str, clock: str) -> str:
    """Return the text of a script with `clock` as its clock."""
    start = script.index(FIRST_LINE)
    end = script.rindex(LAST_LINES)
    return script[:start] + clock + script[end:]


def main() -> None:
    for path in embedding_scripts():
        before = path.read_text(encoding="utf-8")
        after = embed(before, clock_text())
        if after != before:
            path.write_text(after, encoding="utf-8", newline="\n")
            print(f"written: {path.relative_to(ROOT).as_posix()}")


if __name__ == "__main__":
    main()
