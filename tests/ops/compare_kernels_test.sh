#!/bin/bash
# compare_kernels TOOL LIBRARIES: two copies of the AVX2 kernels give the same bits, in every layout.
set -u
tool=$1
shift
for file in "$@"; do case "$file" in */libavx2.*a) archive=$file ;; esac; done
if nm -C "$archive" | grep -qE ' U __([at]san|ubsan)_'; then
  echo "skipped: sanitizers need a runtime that a library does not have"
  exit 0
fi
if ! grep -qw avx2 /proc/cpuinfo; then
  echo "skipped: this processor has no AVX2"
  exit 0
fi
fail() {
  echo "$1:"
  cat "$TEST_TMPDIR/out"
  exit 1
}
for name in one other; do
  g++ -shared -Wl,--whole-archive "$archive" -Wl,--no-whole-archive -o "$TEST_TMPDIR/$name.so" || exit 1
done
cd "$TEST_TMPDIR"
run() { "$OLDPWD/$tool" --rows 17 --sum 70 --columns 130 --task 64 --repeat 1 "$@" > out 2>&1; }
for layout in ordinary transposed packed gradient; do
  run --isa avx2 --layout $layout ./one.so ./other.so || fail "$layout"
  [ "$(grep -c 'times as fast$' out)" = 2 ] || fail "$layout: not two lines"
  reading=$(grep -c '[1-9].*%) of reading' out)
  [ "$reading" = $([ $layout = gradient ] && echo 0 || echo 2) ] || fail "$layout: $reading shares of reading"
done
run --isa avx2 --threads 3 --experts 5 ./one.so ./other.so || fail "three threads"
[ "$(grep -c 'times as fast$' out)" = 2 ] || fail "three threads: not two lines"
run --isa avx2 --threads 0 ./one.so && fail "no threads"
run --isa avx2 ./nowhere.so && fail "a library that does not exist"
grep -q 'error: .*nowhere.so' out || fail "no error about nowhere.so"
run --isa portable ./one.so && fail "a library without these kernels"
grep -q 'error: .*portable' out || fail "no error about portable"
