"""Checks what the search of the built site finds.

python tools/check_search.py build/site
"""

import json
import sys
from pathlib import Path
from typing import Any

# Terms as Sphinx stems them, and a page that must show one in a title or in the name of an object.
EXPECTED = {"crop": "docs/operators", "mask": "docs/my-data"}
OF_DEVELOPERS = ("benchmarks/", "docs/dev/", "tests/")


def pages_of(found: int | list[int], names: list[str]) -> set[str]:
    """The names of pages; Sphinx writes a single one without a list."""
    return {names[page] for page in ([found] if isinstance(found, int) else found)}


def main(site: Path) -> list[str]:
    """What is wrong with the index."""
    text = (site / "searchindex.js").read_text()
    index: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    names = index["docnames"]
    wrong = []
    for term, page in EXPECTED.items():
        shown = pages_of(index["titleterms"].get(term, []), names)
        shown |= {names[o[0]] for group in index["objects"].values() for o in group if term in o[4]}
        if page not in shown:
            wrong.append(f"search for {term!r} does not lead to {page}")
    texts = set().union(*(pages_of(found, names) for found in index["terms"].values()))
    wrong += [
        f"search reads the text of {page}" for page in texts if page.startswith(OF_DEVELOPERS)
    ]
    return wrong


if __name__ == "__main__":
    sys.exit("\n".join(main(Path(sys.argv[1]))) or None)
