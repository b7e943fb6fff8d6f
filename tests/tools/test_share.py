"""The man page of `l3` and its completions in share/ are those of the parser, and work."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("shtab")
import write_share


@pytest.mark.skipif(sys.version_info < (3, 11), reason="argparse of 3.10 adds defaults to help")
def test_files_are_up_to_date() -> None:
    assert write_share.main(["--check"]) == 0, "run python tools/write_share.py"


def test_bash_completes_commands_and_files() -> None:
    script = f"""
source {write_share.SHARE / write_share.COMPLETIONS["bash"]}
cd {write_share.SHARE}
COMP_WORDS=(l3 enc) COMP_CWORD=1; _shtab_l3 l3 enc; echo ${{COMPREPLY[@]}}
COMP_WORDS=(l3 encode l3) COMP_CWORD=2; _shtab_l3 l3 l3; echo ${{COMPREPLY[@]}}
"""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "encode\nl3dali\n"


def test_man_page_has_each_option() -> None:
    page = (write_share.SHARE / "man/man1/l3.1").read_text().replace("\\-", "-")
    for text in (".SH L3 CONVERT", "\\fB--files-from\\fR", "\\fB-o\\fR, \\fB--output\\fR"):
        assert text in page
