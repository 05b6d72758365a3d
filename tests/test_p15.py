"""The crawler with other inputs than its scenario."""

from typing import Any

import pytest

from tests.scripts import load_script


def crawl(capsys: pytest.CaptureFixture[str], stage: Any, *args: Any) -> list[str]:
    """Run the stage's crawl under its paused clock; return the lines it prints."""
    stage.run_paused(stage.crawl(*args))
    return capsys.readouterr().out.splitlines()


def test_equal_delays_report_in_the_order_they_were_started(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = load_script("workshops/p15/stage1.py")
    pages = [stage.Page(f"/{number}", 50) for number in range(20)]
    assert crawl(capsys, stage, pages) == [
        f"[ 50 ms] /{number} -> Ok({100 * len(str(number)) + 100})"
        for number in range(20)
    ]


def test_limit_1_is_sequential(capsys: pytest.CaptureFixture[str]) -> None:
    stage = load_script("workshops/p15/stage2.py")
    assert crawl(capsys, stage, stage.PAGES, 1) == [
        "[120 ms] /home -> Ok(500)",
        '[200 ms] /about -> Err("/about: timeout")',
        "[400 ms] /blog -> Ok(500)",
        "[460 ms] /blog/1 -> Ok(700)",
        "[550 ms] /blog/2 -> Ok(700)",
        "[700 ms] /contact -> Ok(800)",
        "[770 ms] /faq -> Ok(400)",
        "peak in flight: 1",
    ]


def test_a_limit_above_the_number_of_pages_is_stage_1(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unlimited = load_script("workshops/p15/stage1.py")
    limited = load_script("workshops/p15/stage2.py")
    expected = crawl(capsys, unlimited, unlimited.PAGES)
    assert crawl(capsys, limited, limited.PAGES, 9) == [
        *expected,
        "peak in flight: 7",
    ]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_unexpected_error_is_not_swallowed(
    capsys: pytest.CaptureFixture[str], number: int
) -> None:
    stage: Any = load_script(f"workshops/p15/stage{number}.py")
    real_fetch = stage.fetch

    async def fetch(page: Any) -> int:
        size: int = await real_fetch(page)
        if page.path == "/faq":
            raise ZeroDivisionError("a bug in the fetch")
        return size

    stage.fetch = fetch
    args = [stage.PAGES, 9][: min(number, 2)]
    if number == 3:
        args.append(stage.Policy.COLLECT_ALL)
    with pytest.raises(ExceptionGroup) as caught:
        crawl(capsys, stage, *args)
    assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]
    # The bug is met at 70 ms. Nothing that would finish later is reported.
    assert "/home" not in capsys.readouterr().out


def test_under_fail_fast_nothing_is_reported_after_the_first_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = load_script("workshops/p15/stage3.py")
    pages = [
        stage.Page("/quick", 10),
        stage.Page("/bad", 50, fails=True),
        stage.Page("/worse", 51, fails=True),
        stage.Page("/slow", 60),
        stage.Page("/queued", 1),
    ]
    assert crawl(capsys, stage, pages, 4, stage.Policy.FAIL_FAST) == [
        "[ 10 ms] /quick -> 600 bytes",
        "[ 11 ms] /queued -> 700 bytes",
        "[ 50 ms] error: /bad: timeout",
        "FailFast: ok=2 errors=1 cancelled=2 peak=4",
    ]


def test_what_finished_in_the_millisecond_of_the_error_still_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = load_script("workshops/p15/stage3.py")
    pages = [
        stage.Page("/bad", 50, fails=True),
        stage.Page("/tie", 50),
        stage.Page("/late", 51),
    ]
    assert crawl(capsys, stage, pages, 3, stage.Policy.FAIL_FAST) == [
        "[ 50 ms] error: /bad: timeout",
        "[ 50 ms] /tie -> 400 bytes",
        "FailFast: ok=1 errors=1 cancelled=1 peak=3",
    ]


def test_an_empty_list_of_pages_ends_at_0_ms(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stage = load_script("workshops/p15/stage3.py")

    async def timed() -> float:
        await stage.crawl([], 3, stage.Policy.COLLECT_ALL)
        return stage.asyncio.get_running_loop().time()  # type: ignore[no-any-return]

    assert stage.run_paused(timed()) == 0
    assert capsys.readouterr().out == "CollectAll: ok=0 errors=0 cancelled=0 peak=0\n"


def test_a_crawl_that_is_cancelled_leaves_no_fetch_behind() -> None:
    stage: Any = load_script("workshops/p15/stage3.py")

    async def cancelled_after_30_ms() -> int:
        crawl = stage.asyncio.create_task(
            stage.crawl(stage.PAGES, 3, stage.Policy.COLLECT_ALL)
        )
        await stage.asyncio.sleep(0.03)
        crawl.cancel()
        await stage.asyncio.wait([crawl])
        assert crawl.cancelled()
        return len(stage.asyncio.all_tasks())

    assert stage.run_paused(cancelled_after_30_ms()) == 1
