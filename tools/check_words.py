"""Finds private phrases and long sentences: in Markdown, help texts, errors, docstrings, comments.

    python tools/check_words.py [PATH...]

Prints a line for each finding and exits with 1 if there is one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXTS = re.compile(r"\.(cc?|cmake|cuh?|h|html|inc|js|md|pyi?|rst|toml|yml)$|Makefile|CMakeLists")
MOST_WORDS = 35
# A phrase, and the plain word for it. Spaces match line breaks, also between lines of comments.
PHRASES = {
    r"without a word|in silence": "silently",
    r"(is|are|was|were|been|being|unless|not) told|(told|tells?|telling) of": "reported, named",
    r"pass(ed|es|ing) over": "skipped, ignored",
    r"judge[sd]?|judging": "validate, check, decide",
    r"nobody|no-?one": "no user, no caller, never",
    r"somebody|whoever": "the caller, the user, a program",
    r"earn(s|ed)?": "name the condition",
    r"for want of|goe?s? by the": "because ... is missing, follows",
    r"what is no|that is no (?!longer|more)": "what is not a",
    r"mends?|mended|mending": "fix, repair",
    r"hears?|heard|heeds?": "receives, obeys",
    r"vouch(es)?( for)?": "trusted, untrusted",
    r"amid|lest|wherein|thereof|whence|nought|betwixt": "a common word",
    r"who (asks|reads|has|takes|wants|gives|calls)": "name the reader or the caller",
    r"(may|must) know|knows? no|knows? nothing|does not know": "uses, depends on, has no",
    r"(is|are) doubted|doubts?": "is validated",
    r"by the letter|to the letter|for ever": "exactly, always",
    r"at hand|in hand|on paper": "available, current, estimated",
    r"beforehand|of late|of old": "before, recently",
    r"sound (file|image|shard|data)s?": "valid",
    r"of strangers|a stranger('s)?": "untrusted",
    r"(has|have|had) gone": "disappeared, was deleted, closed",
    r"come meanwhile|gone meanwhile": "created, deleted by another process",
    r"says? nothing|said of": "name the content",
    r"be it|as it were|so to say": "leave it out",
    r"spare[sd]?( us| it)": "saves, avoids",
    r"unsaid": "without a note",
}
FOUND = re.compile(
    "|".join(
        rf"(?P<p{i}>(?<![^\W_])(?:{phrase})(?![^\W_]))" for i, phrase in enumerate(PHRASES)
    ).replace(" ", r"(?:_|\s+(?:(?:#|//|\*)\s+)?)"),
    re.IGNORECASE,
)


def phrases(text: str) -> Iterator[tuple[int, str]]:
    """Line and message of each phrase of the list, except in names of invalid files."""
    text = re.sub(r"\bk[A-Z]\w+__\w+", lambda name: "k" * len(name[0]), text)
    for found in FOUND.finditer(text):
        words = " ".join(found.group().split())
        number = int(str(found.lastgroup)[1:])
        yield text.count("\n", 0, found.start()) + 1, f'"{words}": {list(PHRASES.values())[number]}'


def long_sentences(text: str) -> Iterator[tuple[int, str]]:
    """Line and message of each sentence of a page that is too long; a span of code is a word."""
    hidden = re.compile(r"^```.*?^```|<!--.*?-->", re.MULTILINE | re.DOTALL)
    text = hidden.sub(lambda block: "\n" * block[0].count("\n"), text)
    text = re.sub(r"`[^`\n]+`", "code", re.sub(r"\]\([^)]*\)", "]", text))
    start = 0
    for end in re.finditer(r"[.!?:;]\)?(?=\s)|\n\s*\n|\n(?=\s*[*|#]|\s*\d\.)|\||\Z", text):
        sentence = text[start : end.start()]
        if len(sentence.split()) > MOST_WORDS and not sentence.lstrip("\n").startswith("    "):
            line = text.count("\n", 0, start + len(sentence) - len(sentence.lstrip())) + 1
            yield line, f"{len(sentence.split())} words in a sentence"
        start = end.end()


def main() -> int:
    """Prints all findings."""
    command = ["git", "ls-files", *sys.argv[1:]]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    findings: list[str] = []
    for name in listed.splitlines():
        if not TEXTS.search(name) or name == "tools/check_words.py":
            continue
        text = (ROOT / name).read_text()
        found = list(phrases(text))
        user_page = re.fullmatch(r"README.md|docs/[^/]+\.md", name) and name != "docs/format.md"
        found += long_sentences(text) if user_page else []
        findings += [f"{name}:{line}: {message}" for line, message in sorted(found)]
    print("\n".join(findings) or "no findings")
    return int(bool(findings))


if __name__ == "__main__":
    sys.exit(main())
