"""Compares what a script printed with its golden text."""

from dataclasses import dataclass
from itertools import zip_longest

AROUND = 3  # lines shown before and after the first that differs


@dataclass(frozen=True)
class Difference:
    """The first line that differs. None stands for a line that is not there."""

    line: int  # counted from 1
    expected: str | None
    got: str | None
    before: tuple[str, ...]  # lines that are equal, just before it
    after: tuple[str, ...]  # expected lines just behind it


def visible(line: str | None) -> str:
    """Return `line` so that every character of it can be seen.

    A blank at its end shows as a middle dot, what does not print as an escape, and
    a missing line end as the words for it.
    """
    if line is None:
        return "(no line)"
    text = line.removesuffix("\n")
    body = text.rstrip(" ")
    blanks = "·" * (len(text) - len(body))
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in body)
    end = "" if line.endswith("\n") else " (no line end)"
    return f"{shown}{blanks}{end}"


def first_difference(expected: str, got: str) -> Difference | None:
    """Return where `got` first differs from `expected`, or None where it does not."""
    expected_lines = expected.splitlines(keepends=True)
    got_lines = got.splitlines(keepends=True)
    for index, (want, have) in enumerate(zip_longest(expected_lines, got_lines)):
        if want != have:
            return Difference(
                line=index + 1,
                expected=want,
                got=have,
                before=tuple(expected_lines[max(0, index - AROUND) : index]),
                after=tuple(expected_lines[index + 1 : index + 1 + AROUND]),
            )
    return None


def explain(difference: Difference) -> str:
    """Return the difference in words, a few lines long."""
    return "\n".join(
        [
            f"line {difference.line} differs",
            *(f"           {visible(line)}" for line in difference.before),
            f"  expected {visible(difference.expected)}",
            f"  got      {visible(difference.got)}",
            *(f"           {visible(line)}" for line in difference.after),
        ]
    )
