"""The page of a run opens offline in a browser and shows what was measured."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture
def page(comm, tmp_path):
    comm(
        *(
            "run",
            "--backend",
            "gloo",
            "--nproc",
            "2",
            "--num-devices",
            "2",
            "--grid-shape",
            "2",
            "--run-dir",
            "R",
        ),
        *("--ops", "all_reduce", "--bytes-grid", "1024", "65536", "--budget", "0.01"),
    )
    outcome = comm("report", "--run-dir", "R")
    assert outcome.code == 0, outcome.err
    return tmp_path / "R" / "report.html"


def test_the_page_loads_nothing_from_elsewhere(page):
    text = page.read_text()

    assert "<script" not in text
    assert "src=" not in text
    assert text.count("http") == text.count('xmlns="http://www.w3.org/2000/svg"')
    assert "Latency of all_reduce" in text
    assert "n=2, tier 0, block" in text


def test_a_browser_draws_the_page(page, tmp_path):
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    picture = tmp_path / "page.png"
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]

    dumped = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=False
    )
    subprocess.run(
        [*command, f"--screenshot={picture}", page.as_uri()], capture_output=True, timeout=120, check=False
    )

    assert dumped.stdout.count("<polyline") == 2
    assert picture.stat().st_size > 10_000
