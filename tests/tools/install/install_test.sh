#!/bin/bash
# usage: install_test.sh INSTALL EXAMPLE_C EXAMPLE_CC EXAMPLE_RANKS_C   pkg-config and CMake find what is installed, and it runs
set -euo pipefail
install=$PWD/$1 example=$PWD/$2 example_cc=$PWD/$3 example_ranks=$PWD/$4
folder=$(mktemp -d -p "${TEST_TMPDIR-}")
trap 'rm -rf "$folder"' EXIT
fail() { echo "FAIL: $1"; exit 1; }

# A folder that is moved later, and a second installation over the first one.
(export BUILD_WORKING_DIRECTORY=$folder; "$install" --prefix first && "$install" --prefix=first)
mv "$folder/first" "$folder/usr"
prefix=$folder/usr
[ -z "$(find "$prefix" -name '*.new.*')" ] || fail "a temporary file is left"
number() { sed -n "s/^#define SLUICE_ABI_$1 //p" "$prefix/include/sluice.h"; }
version=$(number MAJOR).$(number MINOR)
for path in include/sluice.h include/sluice.hpp lib/libsluice.so lib/libsluice.so.1 "lib/libsluice.so.$version" bin/sluice bin/sluice-bench \
            bin/sluice-mpi bin/sluice-opt bin/sluicec share/sluice/targets/cpu.json \
            share/sluice/graphs/moe_ffn/train.json share/sluice/graphs/linear/column_parallel.json share/doc/sluice/LICENSE; do
  [ -f "$prefix/$path" ] || fail "$path is not there"
done
[ "$(readlink "$prefix/lib/libsluice.so.1")" = "libsluice.so.$version" ] || fail "the name of the library is no link"
for path in lib/libsluice.so bin/sluice bin/sluice-bench bin/sluice-opt bin/sluicec; do
  if ldd "$prefix/$path" | grep -iE 'LLVM|MLIR|not found'; then fail "$path needs what it must not"; fi
done

# Errors are reported, and nothing is written.
expect_refused() {
  if message=$("$install" "$@" 2>&1); then fail "accepted: $*"; fi
  case $message in *"install: error: "*) ;; *) fail "no message for: $*" ;; esac
}
expect_refused
expect_refused --prefix
expect_refused --nonsense
touch "$folder/file"
expect_refused --prefix "$folder/file/below"

# Every installed tool starts, and those that start others find them.
unset SLUICE_TARGETS
cd "$folder"
for tool in sluice sluice-bench sluice-mpi sluice-opt sluicec; do
  "$prefix/bin/$tool" --version > found || fail "$tool does not start"
done
"$prefix/bin/sluice" bench --case tiny --repeat 1 --no-scaling > found || fail "sluice bench"
grep -q tiny found || fail "sluice bench measured nothing"

# A compiler that is copied elsewhere has the targets inside; the installed one finds the files.
mkdir alone
cp "$prefix/bin/sluicec" alone/
alone/sluicec "$prefix/share/sluice/graphs/moe_ffn/forward.json" --target ascend910b -o alone/layer.slp
"$prefix/bin/sluicec" "$prefix/share/sluice/graphs/moe_ffn/train.json" --target cpu --set ep=1 --set experts=8 \
  --set top_k=2 --set hidden=64 --set intermediate=48 --set max_tokens=64 -o layer.slp
"$prefix/bin/sluice" verify layer.slp
"$prefix/bin/sluicec" "$prefix/share/sluice/graphs/moe_ffn/train.json" --target cpu --set ep=2 --set experts=8 \
  --set top_k=3 --set hidden=64 --set intermediate=48 --set max_tokens=100 -o ranks.slp

if nm -D "$prefix/lib/libsluice.so" | grep -qE '__(asan|tsan)_'; then
  echo "skipped: a library with a sanitizer inside cannot be linked by an ordinary compiler"
  exit 0
fi
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
[ "$(pkg-config --modversion sluice)" = "$version" ] || fail "pkg-config has another version"
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror -pedantic "$example" $(pkg-config --cflags --libs sluice) -lm -o by_pkg_config
LD_LIBRARY_PATH=$prefix/lib ./by_pkg_config layer.slp | tee found
[ "$(grep -c 'of the largest value' found)" = 3 ] || fail "the example did not compare three outputs"
if message=$(LD_LIBRARY_PATH=$prefix/lib ./by_pkg_config "$example" 2>&1); then fail "a file that is no program runs"; fi
case $message in "embed: error: "*) ;; *) fail "no message for a file that is no program" ;; esac

# Two processes that share the experts.
# shellcheck disable=SC2046
cc -std=c11 -Wall -Wextra -Werror -pedantic "$example_ranks" $(pkg-config --cflags --libs sluice) -lm -o ranks_example
LD_LIBRARY_PATH=$prefix/lib ./ranks_example ranks.slp | tee found
[ "$(grep -c 'rank [01]: .* of the largest value' found)" = 2 ] || fail "two processes did not check their tokens"
if message=$(LD_LIBRARY_PATH=$prefix/lib ./ranks_example "$example" 2>&1); then fail "ranks: a file that is no program runs"; fi
case $message in "embed_ranks: error: rank "*) ;; *) fail "ranks: found '$message', expected an error" ;; esac

# The C++ header, as the oldest standard that it promises takes it.
# shellcheck disable=SC2046
c++ -std=c++17 -Wall -Wextra -Werror -pedantic "$example_cc" $(pkg-config --cflags --libs sluice) -pthread -o cc_example
LD_LIBRARY_PATH=$prefix/lib ./cc_example ranks.slp | tee found
[ "$(grep -c 'rank [01], .*: [1-9][0-9]* rows' found)" = 4 ] || fail "two ranks did not run twice"
grep -q 'the same bits from both executors' found || fail "the example did not compare"
if message=$(LD_LIBRARY_PATH=$prefix/lib ./cc_example "$example_cc" 2>&1); then fail "C++: a file that is no program runs"; fi
case $message in "embed: error: $example_cc: "*) ;; *) fail "C++: found '$message', expected the library's message" ;; esac

command -v cmake > /dev/null || { echo "skipped: there is no cmake"; exit 0; }
mkdir project
cat > project/CMakeLists.txt <<'CMAKE'
cmake_minimum_required(VERSION 3.10)
project(embed C)
find_package(sluice 1.0 REQUIRED)
add_executable(embed ${EXAMPLE})
target_link_libraries(embed sluice::sluice m)
CMAKE
cmake -S project -B build -DEXAMPLE="$example" -DCMAKE_PREFIX_PATH="$prefix" > cmake.log || { cat cmake.log; fail "cmake"; }
cmake --build build > cmake.log || { cat cmake.log; fail "cmake --build"; }
build/embed layer.slp
sed -i 's/sluice 1.0/sluice 2.0/' project/CMakeLists.txt
if cmake -S project -B build2 -DEXAMPLE="$example" -DCMAKE_PREFIX_PATH="$prefix" > cmake.log 2>&1; then
  fail "cmake takes version 1 for version 2"
fi
