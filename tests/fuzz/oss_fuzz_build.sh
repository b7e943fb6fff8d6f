#!/bin/bash -eu
# Builds the fuzz targets as OSS-Fuzz asks: with the compilers and flags of $CC, $CXX, $CFLAGS,
# $CXXFLAGS and $LIB_FUZZING_ENGINE, from $SRC/l3 (or this checkout) to $OUT, a seed corpus beside
# each. By hand, without a sanitizer:
#
#   CC=clang CXX=clang++ CFLAGS= CXXFLAGS=-fsanitize=fuzzer-no-link \
#   LIB_FUZZING_ENGINE=-fsanitize=fuzzer OUT=build/oss-fuzz tests/fuzz/oss_fuzz_build.sh
#
# SANITIZER=coverage builds with llvm-cov's counters.

here=$(cd "$(dirname "$0")" && pwd)
source=${SRC:-}/l3
[ -e "$source/CMakeLists.txt" ] || source=$(cd "$here/../.." && pwd)
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
work=${WORK:-$OUT/work}

if [ "${SANITIZER:-}" = coverage ]; then
  CXXFLAGS="${CXXFLAGS:-} -fprofile-instr-generate -fcoverage-mapping"
fi
cmake -S "$source" -B "$work" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_COMPILER="$CXX" -DCMAKE_CXX_FLAGS="${CXXFLAGS:-}" \
  -DL3_FUZZING_ENGINE="$LIB_FUZZING_ENGINE" \
  -DL3_DALI=OFF -DL3_BUILD_PYTHON=OFF -DL3_BUILD_FUZZERS=ON
targets=$(cd "$source/tests/fuzz" && echo fuzz_*.cc)
cmake --build "$work" -j "${JOBS:-$(nproc)}" --target ${targets//.cc/}

for target in ${targets//.cc/}; do
  cp "$work/$target" "$OUT/"
  seeds=("$source/tests/fuzz/corpus/$target")
  case $target in
    fuzz_change | fuzz_decode | fuzz_parse)
      seeds+=("$source/tests/golden/v1" "$source/tests/golden/v2" "$source/tests/invalid"
        "$source/tests/fuzz/found")
      ;;
  esac
  rm -f "$OUT/${target}_seed_corpus.zip"
  for folder in "${seeds[@]}"; do
    [ -d "$folder" ] || continue
    python3 - "$OUT/${target}_seed_corpus.zip" "$folder" <<'PYTHON'
import pathlib, sys, zipfile

with zipfile.ZipFile(sys.argv[1], "a", zipfile.ZIP_DEFLATED) as archive:
    for path in sorted(pathlib.Path(sys.argv[2]).iterdir()):
        if path.is_file():
            archive.write(path, path.name)
PYTHON
  done
done
