"""The documentation site builds without warnings, its links work, and no page loads anything from another host."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from docsite.hooks import formula
from herd.cli.main import COMMANDS

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "link": "href"}
"""Elements that load an address while a page is shown, with the attribute that holds it."""


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(config), "--site-dir", str(site)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


class _Loads(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        address = found.get(LOADING.get(tag, ""))
        if address is not None and found.get("rel") != "canonical":
            self.addresses.append(address)


def test_pages_load_nothing_from_another_host(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        parser = _Loads()
        parser.feed(page.read_text(encoding="utf-8"))
        assert len(parser.addresses) > 3, page  # the theme's own addresses at least, so the parser works
        assert 'data-md-component="source"' not in page.read_text(encoding="utf-8"), page  # it would fetch star counts from the forge
        assert [address for address in parser.addresses if re.match(r"(https?:)?//", address)] == [], page
    for style in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", style.read_text(encoding="utf-8")), style


def test_the_command_page_lists_all_commands(site: Path) -> None:
    page = (site / "cli.html").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"usage: herd {name}" in page


def test_names_in_tables_break_between_words(site: Path) -> None:
    assert "<code>herd_<wbr>process_<wbr>info</code>" in (site / "metrics.html").read_text(encoding="utf-8")
    assert "herd_process_info" in (site / "search" / "search_index.json").read_text(encoding="utf-8")


def test_formulas_are_drawn(site: Path) -> None:
    impala = (site / "impala.html").read_text(encoding="utf-8")
    assert '<div class="formula"><svg role="img" aria-label="v_s = V(x_s)' in impala
    assert [page for page in site.rglob("*.html") if 'class="arithmatex"' in page.read_text(encoding="utf-8")] == []


def test_a_formula_that_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="Unknown symbol"):
        formula(r"\nosuchsymbol")


def test_links_out_of_docs_lead_to_the_site_or_the_repository(site: Path) -> None:
    popart = (site / "popart.html").read_text(encoding="utf-8")
    assert 'href="benchmarks/log/2026-11.html#popart-on-two-scales"' in popart
    assert 'src="benchmarks/results/popart-scales/popart-scales.png"' in popart
    log = (site / "benchmarks" / "log" / "2026-11.html").read_text(encoding="utf-8")
    assert "https://github.com/herd-rl/herd/blob/main/benchmarks/results/dice/deceptive.json" in log


@pytest.mark.parametrize("link", ["no-such-page.md", "../no/such/file.py", "index.md#no-such-part"])
def test_a_broken_link_fails_the_build(link: str, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n[somewhere]({link})\n")
    config = tmp_path / "mkdocs.yml"
    theme = f"theme: {{custom_dir: {ROOT / 'docsite' / 'theme'}}}"
    config.write_text(f"INHERIT: {ROOT / 'mkdocs.yml'}\n{theme}\ndocs_dir: docs\nhooks: []\nextra_css: []\nplugins: []\nnav: [index.md]\n")
    done = build(config, tmp_path / "site")
    assert done.returncode == 1
    assert link.partition("#")[2] or link in done.stderr
    assert "WARNING" in done.stderr
