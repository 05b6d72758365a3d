"""Each script that pauses the clock carries the one text of it, word for word."""

from pathlib import Path

import pytest

from tests.embed_clock import ROOT, clock_text, embed, embedding_scripts


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(path, id=path.relative_to(ROOT).as_posix())
        for path in embedding_scripts()
    ],
)
def test_the_embedded_clock_is_the_one_text(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert text == embed(text, clock_text()), "run: nox -s clock"


def test_no_script_runs_a_paused_clock_of_another_text() -> None:
    embedding = set(embedding_scripts())
    assert len(embedding) >= 5
    for path in (ROOT / "workshops").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "run_paused(" in text and path.parent.name != "p26":
            assert path in embedding, path


def test_embedding_replaces_a_changed_clock_and_nothing_else() -> None:
    path = ROOT / "workshops" / "p15" / "stage1.py"
    text = path.read_text(encoding="utf-8")
    changed = text.replace("self.now = due", "self.now = due + 1")
    assert changed != text
    assert embed(changed, clock_text()) == text
