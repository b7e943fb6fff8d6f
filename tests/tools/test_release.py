"""What a release needs: one version everywhere, metadata, pages that a package index can show."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import release
import wheels

import l3dali

PROJECT = (release.ROOT / "pyproject.toml").read_text()
WORKFLOW = (release.ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_versions_agree() -> None:
    versions = release.versions()
    assert len(versions) == 4
    assert set(versions.values()) == {l3dali.__version__}
    command = [sys.executable, "-m", "l3dali", "--version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown == f"l3 {l3dali.__version__}\n"


def test_tag_of_another_version_is_refused() -> None:
    wrong = "\n".join(release.faults("v0.9.0"))
    for name in release.versions():
        assert f"{name} has {l3dali.__version__}, not 0.9.0" in wrong


@pytest.mark.parametrize(
    ("heading", "cited", "fault"),
    [
        ("1.0.0, not yet released", "", "CHANGELOG.md has no date of its newest version"),
        ("1.0.0, 2026-12-01", "", "CITATION.cff has no line date-released: 2026-12-01"),
        ("1.0.0, 2026-12-01", "date-released: 2026-12-01\n", None),
    ],
)
def test_release_has_its_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heading: str, cited: str, fault: str | None
) -> None:
    monkeypatch.setattr(release, "ROOT", tmp_path)
    (tmp_path / "include" / "l3").mkdir(parents=True)
    header = "".join(f"#define L3_VERSION_{n}\n" for n in ("MAJOR 1", "MINOR 0", "PATCH 0"))
    (tmp_path / "include" / "l3" / "l3.h").write_text(header)
    (tmp_path / "pyproject.toml").write_text('version = "1.0.0"\n')
    (tmp_path / "CITATION.cff").write_text(f"version: 1.0.0\n{cited}")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n## {heading}\n")
    assert release.faults("v1.0.0") == ([fault] if fault else [])


def test_links_work_on_a_package_index() -> None:
    text = release.absolute_links((release.ROOT / "README.md").read_text(), "owner/name", "v1.0.0")
    links = re.findall(r"\]\(([^)]*)\)", text)
    assert len(links) > 5
    for link in links:
        assert re.match(r"https?://|#", link), link
        tail = link.partition("owner/name/")[2]
        if tail:
            path = re.sub(r"^(blob/)?v1\.0\.0/|#.*", "", tail)
            assert (release.ROOT / path).exists(), link
    for image in re.findall(r"!\[[^]]*\]\(([^)]*)\)", text):
        assert image.startswith("https://raw.githubusercontent.com/owner/name/v1.0.0/")


def test_pythons_are_the_same_everywhere() -> None:
    classified = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', PROJECT)
    assert tuple(classified) == wheels.PYTHONS
    assert tuple(re.findall(r"^ {12}(3\.\d+)$", WORKFLOW, re.MULTILINE)) == wheels.PYTHONS
