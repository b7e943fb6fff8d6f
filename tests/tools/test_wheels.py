"""How wheels are made for systems older than the one that builds them."""

from __future__ import annotations

import ctypes
import platform
import re
import shutil
import subprocess
from pathlib import Path

import emulated_python
import old_symbols
import pytest

LISTING = """
   Num:    Value          Size Type    Bind   Vis      Ndx Name
     1: 0000000000000000     0 FUNC    GLOBAL DEFAULT  UND needed@GLIBC_2.17 (2)
     2: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  ABS GLIBC_2.17
     3: 0000000000000000     0 OBJECT  GLOBAL DEFAULT  ABS GLIBC_2.34@@GLIBC_2.34
     4: 0000000000001000    10 FUNC    GLOBAL DEFAULT   15 both@@GLIBC_2.34
     5: 0000000000001000    10 FUNC    GLOBAL DEFAULT   15 both@GLIBC_2.2.5
     6: 0000000000001000    10 FUNC    GLOBAL DEFAULT   15 many@@GLIBC_2.14
     7: 0000000000001000    10 FUNC    GLOBAL DEFAULT   15 many@GLIBC_2.9
     8: 0000000000001000    10 FUNC    GLOBAL DEFAULT   15 new@@GLIBC_2.33
     9: 0000000000001000     8 TLS     GLOBAL DEFAULT   20 local@@GLIBC_2.17
    10: 0000000000001000     8 OBJECT  GLOBAL DEFAULT   21 private@@GLIBC_PRIVATE
"""


def test_symbols_are_the_newest_that_are_allowed() -> None:
    allowed = {"GLIBC": ["2.2.5", "2.9", "2.14", "2.17"]}
    assert old_symbols.choose(LISTING, allowed) == [
        ("both", "FUNC", "GLIBC_2.2.5", True),
        ("many", "FUNC", "GLIBC_2.14", False),
        ("local", "TLS", "GLIBC_2.17", False),
    ]


PROGRAM = """
#include <condition_variable>
#include <exception>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <sys/stat.h>

extern "C" int Answer(int n) {
  struct stat by_name, by_number;
  if (stat("/dev/null", &by_name) != 0 || fstat(0, &by_number) != 0) return -1;
  if (!S_ISCHR(by_name.st_mode)) return -2;
  std::stringstream text;
  text << n;
  std::exception_ptr error;
  std::mutex mutex;
  std::condition_variable came;
  bool done = false;
  std::thread other([&] {
    try {
      throw std::runtime_error(text.str());
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard<std::mutex> lock(mutex);
    done = true;
    came.notify_one();
  });
  {
    std::unique_lock<std::mutex> lock(mutex);
    came.wait(lock, [&] { return done; });
  }
  other.join();
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& caught) {
    return 10 * (caught.what()[0] - '0') + caught.what()[1] - '0';
  }
}
"""


def test_new_systems_link_for_old_ones(tmp_path: Path) -> None:
    for program in ("g++", "readelf"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed")
    done = subprocess.run(["g++", "-dumpmachine"], capture_output=True, text=True, check=True)
    if not re.match(r"(x86_64|aarch64)-.*linux-gnu", done.stdout):
        pytest.skip(f"wheels are not built for {done.stdout}")
    system, version = platform.libc_ver()
    if system != "glibc" or [int(part) for part in version.split(".")] >= [2, 38]:
        pytest.skip(f"headers of {system} {version} ask for functions that older systems lack")
    allowed = {  # a part of what manylinux_2_28 allows
        "GLIBC": ["2.2.5", "2.3", "2.3.2", "2.3.3", "2.3.4", "2.4", "2.14", "2.17", "2.18"],
        "GLIBCXX": ["3.4", "3.4.5", "3.4.9", "3.4.11", "3.4.15", "3.4.20", "3.4.21", "3.4.22"],
        "CXXABI": ["1.3", "1.3.3", "1.3.5", "1.3.7", "1.3.8", "1.3.9"],
    }
    try:
        old = old_symbols.make("g++", allowed, tmp_path / "old")
    except SystemExit as missing:
        pytest.skip(f"wheels are not built here: {missing}")
    (tmp_path / "answer.cc").write_text(PROGRAM)
    library = tmp_path / "libanswer.so"
    command = ["g++", "-std=c++17", "-O2", "-fPIC", "-shared", "-pthread", "answer.cc", f"-L{old}"]
    command += ["-Wl,--exclude-libs,libstdc++.a", "-Wl,-z,defs", "-o", str(library)]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(
        ["readelf", "--version-info", "-W", library], capture_output=True, text=True, check=True
    )
    needed = set(re.findall(r"Name: (GLIBC|GLIBCXX|CXXABI)_([\d.]+)", done.stdout))
    assert ("GLIBCXX", "3.4.21") in needed
    assert {number for prefix, number in needed if number not in allowed[prefix]} == set()
    assert ctypes.CDLL(str(library)).Answer(42) == 42


def test_emulated_python_takes_no_headers_of_others() -> None:
    left_out = emulated_python.LEFT_OUT.match
    assert left_out("libc6-dev_2.36-9_arm64.deb")
    assert left_out("linux-libc-dev_6.1_arm64.deb")
    assert not left_out("libpython3.11-dev_3.11.2_arm64.deb")
    assert not left_out("libc6_2.36-9_arm64.deb")
