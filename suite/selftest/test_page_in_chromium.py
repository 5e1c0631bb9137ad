"""The page in a real browser: it asks for nothing, reports no error, fits every width, works without scripts, and prints whole."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reports.finish import finish
from suite.selftest.fabricated import CRITERIA, fabricate, waiving_policy

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
AXE = importlib.util.find_spec("axe_playwright_python")  # it ships axe-core
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync"]  # fmt: skip
WIDE, NARROW = {"width": 1400, "height": 900}, {"width": 390, "height": 844}

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: install the package chromium"),
    pytest.mark.skipif(importlib.util.find_spec("playwright") is None, reason="playwright is not installed: pip install playwright"),
]


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = fabricate(tmp_path_factory.mktemp("audit"))
    finish(folder, waiving_policy(folder), datetime(2026, 8, 22, tzinfo=UTC))
    return (folder / "audit.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as player:
        opened = player.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def show(browser: Any, address: str) -> Iterator[Any]:
    """Open the page, and fail at the end if it asked for anything or complained."""
    contexts, asked, complaints = [], [], []

    def opened(fragment: str = "", **settings: Any) -> Any:
        context = browser.new_context(offline=True, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(address + fragment)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [url for url in asked if url.split("#")[0] != address and not url.startswith("data:,")] == [], (
        "the page asked for more than itself"
    )
    assert complaints == []


@pytest.mark.parametrize(
    "settings",
    [
        {"viewport": WIDE},
        {"viewport": WIDE, "color_scheme": "dark"},
        {"viewport": NARROW},
        {"viewport": NARROW, "color_scheme": "dark", "java_script_enabled": False},
        {"viewport": WIDE, "forced_colors": "active"},
    ],
    ids=["wide", "dark", "narrow", "narrow-without-scripts", "forced-colors"],
)
def test_nothing_hangs_over_the_edge_and_every_card_is_there(show: Any, settings: dict[str, Any]) -> None:
    page = show(**settings)
    cards = page.locator(".card")

    assert cards.count() == len(CRITERIA)
    assert all(cards.nth(index).is_visible() for index in range(cards.count()))
    if settings.get("java_script_enabled", True):
        assert page.evaluate("document.documentElement.scrollWidth") <= settings["viewport"]["width"]
    else:
        assert not page.locator(".filter").is_visible(), "controls that need a script are not shown without"


def test_dark_and_light_differ_and_the_charts_follow(show: Any) -> None:
    def colours(scheme: str) -> list[str]:
        page = show(viewport=WIDE, color_scheme=scheme)
        return [
            page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).{name}")
            for selector, name in (("body", "backgroundColor"), (".plot text", "fill"))
        ]

    assert all(light != dark for light, dark in zip(colours("light"), colours("dark"), strict=True))


def test_a_filtered_view_is_in_the_address_and_comes_back_from_it(show: Any) -> None:
    page = show(viewport=WIDE)
    page.get_by_label("Find").fill("checkpoint")
    page.get_by_label("passed").uncheck()
    state = page.evaluate("location.hash")
    shown = page.locator(".card:visible").evaluate_all("cards => cards.map(card => card.id)")

    assert shown == ["recovery.worst_boundary"]
    assert "q=checkpoint" in state
    again = show(state, viewport=WIDE)
    assert again.locator(".card:visible").evaluate_all("cards => cards.map(card => card.id)") == shown
    assert again.locator("output").inner_text() == f"1 of {len(CRITERIA)} shown"


def test_criteria_can_be_ordered_by_name(show: Any) -> None:
    page = show(viewport=WIDE)
    page.locator("[name=sort]").select_option("id")
    order = page.locator(".card").evaluate_all("cards => cards.map(card => card.id)")

    assert order == sorted(order)


def test_a_link_to_the_verify_command_opens_the_fold_that_holds_it(show: Any) -> None:
    page = show("#recovery.restore.verify", viewport=WIDE)

    assert page.locator('[id="recovery.restore.verify"]').is_visible()


def test_the_copy_button_copies_the_command(show: Any) -> None:
    page = show(viewport=WIDE, permissions=["clipboard-read", "clipboard-write"])
    page.locator("footer .copy").first.click()
    page.locator("footer .copy", has_text="copied").first.wait_for()

    assert page.evaluate("navigator.clipboard.readText()") == "python -m suite judge audits/flights-20260821-091200"


def test_printing_opens_every_fold(show: Any) -> None:
    page = show(viewport=WIDE)
    page.emulate_media(media="print")

    closed = page.locator(".card > details:not([open])")
    assert closed.count() > 5
    assert all(
        closed.nth(index).locator(".more").evaluate("more => more.getBoundingClientRect().height") > 50 for index in range(closed.count())
    )
    assert page.pdf().startswith(b"%PDF")


@pytest.mark.skipif(AXE is None, reason="axe-core is not installed: pip install axe-playwright-python")
@pytest.mark.parametrize("settings", [{"viewport": WIDE}, {"viewport": WIDE, "color_scheme": "dark"}, {"viewport": NARROW}])
def test_axe_finds_no_violation(browser: Any, address: str, settings: dict[str, Any]) -> None:
    assert AXE is not None
    assert AXE.origin is not None
    page = browser.new_context(bypass_csp=True, **settings).new_page()
    page.goto(address)
    page.evaluate("document.querySelectorAll('details').forEach(fold => fold.open = true)")
    page.evaluate(Path(AXE.origin).with_name("axe.min.js").read_text())
    found = page.evaluate(
        "axe.run(document, {resultTypes: ['violations']}).then(result => result.violations.map(one => one.id + ': ' + one.nodes[0].html))"
    )

    assert found == []
