"""Every stage and every solved extension prints its golden text, to the byte."""

import shutil
from pathlib import Path

import pytest

from stages import catalogue, comparer, runner

ROOT = catalogue.find_root(Path(__file__).parent)
SCRIPTS = catalogue.scripts(ROOT)
STRICT = ["-I", "-X", "utf8", "-X", "dev", "-W", "error"]


def programs() -> list[tuple[str, Path, Path]]:
    """Return (id, program, golden text): stages, and solutions of extensions."""
    found = []
    for script in SCRIPTS:
        program = script.path
        if script.is_extension:
            program = ROOT / "solutions" / script.project / f"{script.name}.py"
        found.append((script.id, program, script.golden))
    return found


@pytest.mark.parametrize(
    ("program", "golden"),
    [pytest.param(program, golden, id=name) for name, program, golden in programs()],
)
def test_a_copy_alone_in_an_empty_folder_prints_the_golden_text(
    program: Path, golden: Path, tmp_path: Path
) -> None:
    assert program.exists(), f"no program for the golden text {golden.name}"
    assert golden.exists(), f"no golden text for {program.name}: nox -s accept"
    copy = Path(shutil.copy(program, tmp_path))
    run = runner.run(copy, options=STRICT, folder=tmp_path, limit=60)
    assert run.stderr.decode() == ""
    assert run.status == 0
    expected = golden.read_bytes()
    difference = comparer.first_difference(expected.decode(), run.stdout.decode())
    assert difference is None, comparer.explain(difference)
    assert run.stdout == expected


def test_each_golden_text_has_a_script() -> None:
    texts = {path for path in (ROOT / "tests" / "golden").rglob("*") if path.is_file()}
    assert texts - {script.golden for script in SCRIPTS} == set()


def test_golden_texts_have_unix_line_ends() -> None:
    assert [s.id for s in SCRIPTS if b"\r" in s.golden.read_bytes()] == []


def test_each_script_says_its_title_in_its_first_line() -> None:
    for script in SCRIPTS:
        kind = "Extension" if script.is_extension else "Stage"
        first = script.path.read_text(encoding="utf-8").splitlines()[0]
        assert first == f'"""{kind} {script.number}: {script.title}'
        assert not first.endswith(".")
