"""Hooks of the site's build (https://www.mkdocs.org/user-guide/configuration/#hooks).

Pages are written for two readers: GitHub, where links are paths in the repository, and the site, which has only some of its files.
These hooks bring files from outside ``docs/`` into the site, write the page of commands, rewrite links that leave ``docs/``, and draw
formulas, which pages have in TeX between dollar signs.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
from html import escape, unescape
from pathlib import Path
from posixpath import normpath, relpath
from typing import TYPE_CHECKING
from unittest import mock

from matplotlib.font_manager import FontProperties
from matplotlib.path import Path as Outline
from matplotlib.textpath import TextPath
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from herd.cli.main import COMMANDS, main, usage

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
BORROWED = {
    "benchmarks/README.md": "benchmarks/README.md",
    "benchmarks/data/README.md": "benchmarks/data/README.md",
    **{path: path for path in sorted(str(found.relative_to(ROOT)) for found in ROOT.glob("benchmarks/log/*.md"))},
    "benchmarks/results/learning/README.md": "benchmarks/results/learning/README.md",
    "helm/herd/README.md": "helm/herd/README.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages from outside ``docs/``: path in the repository -> path in the site."""
PICTURES = ("benchmarks/results/**/*.png", "benchmarks/results/**/*.gif")
LINK = re.compile(r"(?P<before>!?\[[^\]]*\]\()(?P<target>[^)\s]+)(?P<after>[^)]*\))")
TABLE = re.compile(r"<table>.*?</table>", re.DOTALL)
SETTINGS_HEAD = re.compile(r"<th>type</th>\s*<th>default</th>\s*<th>meaning</th>")
NAME = re.compile(r"(?<=<code>)[^<]+(?=</code>)")
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\[([](?P<tex>.*?)\\[)\]]</(?P=tag)>(?P<after>[^\s<]*)', re.DOTALL)
"""What ``pymdownx.arithmatex`` makes of ``$...$`` and ``$$...$$``, with the punctuation after it, which must stay on its line."""
UNITS_PER_EM = 1000
FORMULA_SIZE = 1.15
"""In em of the text, because the letters of formulas are smaller than those of a sans-serif font."""
SVG_COMMANDS = {Outline.MOVETO: "M", Outline.LINETO: "L", Outline.CURVE3: "Q", Outline.CURVE4: "C", Outline.CLOSEPOLY: "Z"}
COLUMNS = 110
"""Width of the help texts in characters, which fits a page without scrolling."""


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the borrowed pages, their pictures, and the page of commands."""
    for source, target in BORROWED.items():
        files.append(File.generated(config, target, content=(ROOT / source).read_text(encoding="utf-8")))
    for pattern in PICTURES:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, "cli.md", content=commands_page()))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrite links that leave ``docs/``: to the site's copy if there is one, otherwise to the repository."""
    here = repository_path(page.file.src_uri)

    def rewritten(match: re.Match[str]) -> str:
        target = match["target"]
        if target.startswith(("http://", "https://", "#")):
            return match[0]
        return match["before"] + link(here, target, page.file.src_uri, files, str(config.repo_url)) + match["after"]

    pieces = FENCE.split(markdown)
    return "".join(piece if number % 2 else LINK.sub(rewritten, piece) for number, piece in enumerate(pieces))


def on_page_content(html: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001  mkdocs passes all
    """Draw the formulas."""

    def drawn(match: re.Match[str]) -> str:
        try:
            return f'<{match["tag"]} class="formula">{formula(unescape(match["tex"]).strip())}{match["after"]}</{match["tag"]}>'
        except ValueError as error:
            raise PluginError(f"{page.file.src_uri}: {error}") from error

    return FORMULA.sub(drawn, html)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001  mkdocs passes both
    """Let long names in tables break after an underscore, a dot or a slash. The search's index is made before.

    Tables of settings get an attribute, by which ``site.css`` stacks their columns on a phone.
    """

    def breakable(table: re.Match[str]) -> str:
        found = NAME.sub(lambda name: re.sub(r"(?<=[_./])(?=\w)", "<wbr>", name[0]), table[0])
        return found.replace("<table>", "<table data-settings>", 1) if SETTINGS_HEAD.search(found) else found

    return TABLE.sub(breakable, output)


def repository_path(src_uri: str) -> str:
    """Return the path of a page's file in the repository."""
    outside = {target: source for source, target in BORROWED.items()}
    return outside.get(src_uri, f"docs/{src_uri}")


def link(here: str, target: str, src_uri: str, files: Files, repository: str) -> str:
    """Return the link for the site. A path that does not exist is unchanged and fails the build."""
    path, mark, anchor = target.partition("#")
    wanted = normpath(f"{here}/../{path}")
    in_site = BORROWED.get(wanted, wanted.removeprefix("docs/"))
    if files.get_file_from_path(in_site) is not None:
        return relpath(in_site, f"{src_uri}/..") + mark + anchor
    found = ROOT / wanted
    if not found.exists():
        return target
    return f"{repository.rstrip('/')}/{'tree' if found.is_dir() else 'blob'}/main/{wanted}{mark}{anchor}"


def formula(tex: str) -> str:
    """Return the formula as an SVG of outlines, so that it needs neither fonts nor scripts and takes the colour of the text.

    Raises:
        ValueError: matplotlib does not understand the TeX.
    """
    path = TextPath((0, 0), f"${tex}$", size=FORMULA_SIZE * UNITS_PER_EM, prop=FontProperties(math_fontfamily="stix"))
    outlines = "".join(
        SVG_COMMANDS[code] + ("" if code == Outline.CLOSEPOLY else " ".join(f"{number:.0f}" for number in points))
        for points, code in path.iter_segments(simplify=False)
    )
    left, bottom, width, height = path.get_extents().bounds
    size = f"width:{width / UNITS_PER_EM:.2f}em;height:{height / UNITS_PER_EM:.2f}em;vertical-align:{bottom / UNITS_PER_EM:.2f}em"
    box = f"{left:.0f} {-bottom - height:.0f} {width:.0f} {height:.0f}"
    return f'<svg role="img" aria-label="{escape(tex)}" viewBox="{box}" style="{size}"><path transform="scale(1,-1)" d="{outlines}"/></svg>'


def commands_page() -> str:
    """Return the page, as Markdown."""
    parts = [
        "# Commands",
        "This page is generated from the parsers: it shows what `--help` prints.",
        f"```text\n{usage()}\n```",
    ]
    parts += [f"## herd {name}\n\n```text\n{help_text(name)}\n```" for name in COMMANDS]
    return "\n\n".join(parts) + "\n"


def help_text(command: str) -> str:
    """Return the output of ``herd COMMAND --help``."""
    printed = io.StringIO()
    plain = mock.patch.dict(os.environ, {"COLUMNS": str(COLUMNS), "NO_COLOR": "1"})
    with plain, contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([command, "--help"])
    return printed.getvalue().rstrip()
