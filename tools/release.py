"""Checks that a tag names the version of this tree, and prepares its pages for a package index.

    python tools/release.py v1.0.0 [--repository OWNER/NAME]

With --repository, links of README.md become absolute and pyproject.toml gets the project's URLs.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PATTERNS = {
    "pyproject.toml": r'^version = "(.*)"$',
    "CITATION.cff": r"^version: (.*)$",
    "CHANGELOG.md": r"^## (\d\S*), ",
}


def versions() -> dict[str, str]:
    """The version that each file names first."""
    found = {}
    for name, pattern in PATTERNS.items():
        match = re.search(pattern, (ROOT / name).read_text(), re.MULTILINE)
        found[name] = match[1] if match else "none"
    header = (ROOT / "include" / "l3" / "l3.h").read_text()
    found["l3.h"] = ".".join(re.findall(r"#define L3_VERSION_[A-Z]+ (\d+)", header))
    return found


def faults(tag: str) -> list[str]:
    """Reasons not to release this tree as `tag`."""
    wrong = [f"{n} has {v}, not {tag[1:]}" for n, v in versions().items() if f"v{v}" != tag]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    date = re.search(r"^## \d\S*, (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    if date is None:
        wrong.append("CHANGELOG.md has no date of its newest version")
    elif f"\ndate-released: {date[1]}\n" not in (ROOT / "CITATION.cff").read_text():
        wrong.append(f"CITATION.cff has no line date-released: {date[1]}")
    return wrong


def absolute_links(text: str, repository: str, tag: str) -> str:
    """Markdown whose links to files of the repository lead to GitHub."""
    pages = f"https://github.com/{repository}/blob/{tag}/"
    files = f"https://raw.githubusercontent.com/{repository}/{tag}/"
    text = re.sub(r"(!\[[^]]*\]\()(?!https?:)", rf"\1{files}", text)
    return re.sub(r"((?<!!)\[[^]]*\]\()(?!https?:|#)", rf"\1{pages}", text)


def urls(repository: str, tag: str) -> str:
    """The table [project.urls]."""
    owner, name = repository.split("/")
    home = f"https://github.com/{repository}"
    named = {
        "Homepage": home,
        "Documentation": f"https://{owner.lower()}.github.io/{name}/",
        "Changelog": f"{home}/blob/{tag}/CHANGELOG.md",
        "Issues": f"{home}/issues",
    }
    return "[project.urls]\n" + "".join(f'{key} = "{url}"\n' for key, url in named.items())


def main() -> str | None:
    """Checks, and with --repository writes."""
    assert __doc__
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tag")
    parser.add_argument("--repository", metavar="OWNER/NAME", help="write absolute links and URLs")
    options = parser.parse_args()
    if wrong := faults(options.tag):
        return "\n".join(wrong)
    if options.repository:
        readme, project = ROOT / "README.md", ROOT / "pyproject.toml"
        readme.write_text(absolute_links(readme.read_text(), options.repository, options.tag))
        named = f"{urls(options.repository, options.tag)}\n[project.scripts]\n"
        project.write_text(project.read_text().replace("[project.scripts]\n", named))
    return None


if __name__ == "__main__":
    sys.exit(main())
