"""Every check that a maintainer or CI runs. `nox` alone does all that a merge needs.

nox                  tests on each Python found, and lint
nox -s tests-3.12    the tests on one Python
nox -s lint          ruff and mypy
nox -s clock         write the paused clock into every script that embeds it
nox -s accept -- ID  write golden text from a run (only without a document)
nox -s soak -- 200   so many runs of each script, under load
"""

import os
import shutil
import subprocess

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]

nox.needs_version = ">=2024.10.9"
nox.options.default_venv_backend = "uv|virtualenv"
nox.options.download_python = "never"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "tests", "lowest", "one_python"]

tested: list[str] = []


def select_all_of_pyenv() -> None:
    """pyenv's shims refuse each version that is not selected: select all it has."""
    if shutil.which("pyenv") and "PYENV_VERSION" not in os.environ:
        listed = subprocess.run(
            ["pyenv", "versions", "--bare"], capture_output=True, text=True
        ).stdout.split()
        wanted = [v for v in listed if v.rpartition(".")[0] in PYTHONS]
        if wanted:
            os.environ["PYENV_VERSION"] = ":".join(wanted)


select_all_of_pyenv()


def install(session: nox.Session, group: str, *options: str) -> None:
    """Install the package as it stands here, with a group of dependencies."""
    project = nox.project.load_toml("pyproject.toml")
    wanted = nox.project.dependency_groups(project, group)
    session.install(*options, "-e", ".", *wanted)


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    """Run the tests, side by side on all cores."""
    install(session, "test")
    session.run("pytest", "-n", "auto", *session.posargs)
    tested.append(str(session.python))


@nox.session(venv_backend="uv")
def lowest(session: nox.Session) -> None:
    """Run the tests with the oldest versions that pyproject.toml allows."""
    install(session, "test", "--resolution", "lowest-direct")
    session.run("pytest", "-n", "auto", *session.posargs)


@nox.session(python=False)
def one_python(session: nox.Session) -> None:
    """Fail when no Python at all was found: skipped tests show nothing."""
    if not tested:
        session.error(f"the tests ran on none of Python {', '.join(PYTHONS)}")
    session.log(f"tested on Python {', '.join(tested)}")


@nox.session
def lint(session: nox.Session) -> None:
    """Check format, lint and types."""
    install(session, "lint")
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")
    session.run("mypy", ".")


@nox.session(python=False)
def clock(session: nox.Session) -> None:
    """Write the paused clock into every script that embeds it."""
    session.run("python", "-m", "tests.embed_clock", external=True)


@nox.session
def accept(session: nox.Session) -> None:
    """Write golden texts from a run, for scripts without a document behind them."""
    install(session, "test")
    session.run("python", "-m", "tests.accept_golden", *session.posargs)


@nox.session(python=PYTHONS)
def soak(session: nox.Session) -> None:
    """Run each script many times under load: `nox -s soak -- 200 p15/1 p27/2`."""
    install(session, "test")
    session.run("python", "-m", "tests.soak.soak", *session.posargs)
