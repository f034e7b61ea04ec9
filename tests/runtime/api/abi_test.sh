#!/bin/bash
# usage: abi_test.sh HEADER ABI_C LIBRARY SYMBOLS...   SYMBOLS: the functions of 1.0, and those that each later version added
# Checks that ABI 1.0 holds for this header and library, and that changes that break it are found.
set -u
header=$1 abi=$2 library=$3
shift 3
folder=$(mktemp -d -p "${TEST_TMPDIR-}")
trap 'rm -rf "$folder"' EXIT
symbols=$folder/symbols
sort "$@" > "$symbols"
failures=0
fail() { echo "FAIL: $1"; failures=$((failures + 1)); }

compiles() { cc -std=c11 -Wall -Wextra -Werror -pedantic -I"$1" -c "$abi" -o "$folder/abi.o" 2> "$folder/log"; }

mkdir "$folder/good"
cp "$header" "$folder/good/sluice.h"
compiles "$folder/good" || { fail "the header does not keep ABI 1.0"; cat "$folder/log"; }

# broken NAME SED   the header with this change must not compile
broken() {
  mkdir "$folder/$1"
  sed -E "$2" "$header" > "$folder/$1/sluice.h"
  cmp -s "$header" "$folder/$1/sluice.h" && fail "$1: the header has no such line any more"
  compiles "$folder/$1" && fail "$1: a break of the ABI is not found"
}
broken field_moved 's/^  int32_t rank;$/  int64_t rank;/'
broken field_removed '/^  uint64_t graph_hash;/d'
broken field_inserted 's/^  uint64_t graph_hash;$/  uint64_t graph_hash;\n  uint64_t more;/'
broken fields_swapped 's/^(  sluice_)type type;/\1role type;/; s/^  int32_t dim_count;/  int64_t dim_count;/'
broken value_changed 's/SLUICE_BF16 = 1/SLUICE_BF16 = 2/'
broken status_changed 's/SLUICE_ERROR_FAILED = 2/SLUICE_ERROR_FAILED = 7/'
broken function_removed '/sluice_type_bytes/d'
broken argument_changed 's/int32_t sluice_type_bytes\(sluice_type type\)/int32_t sluice_type_bytes(int64_t type)/'
broken element_grown 's/^  int64_t size; .*SLUICE_FIXED only.*/  int64_t size, more;/'

# The library exports the listed functions and nothing else. (gold also exports symbols that libfmt takes from
# libstdc++; the same functions as in libstdc++.)
nm -D --defined-only "$library" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort > "$folder/exported"
grep -v '^_ZNSt' "$folder/exported" | diff "$symbols" - || fail "the library exports other functions"
nm -D --defined-only "$library" | grep -q ' sluice_context_run@@SLUICE_1.0$' || fail "symbols have no version"
nm -D --defined-only "$library" | grep -q ' sluice_context_refuse@@SLUICE_1.1$' || fail "1.1 has no version of its own"
nm -D --defined-only "$library" | grep -q ' sluice_context_bind_rows@@SLUICE_1.2$' || fail "1.2 has no version of its own"
nm -D --defined-only "$library" | grep -q ' sluice_context_set_stream@@SLUICE_1.3$' || fail "1.3 has no version of its own"
grep -o '\bsluice_[a-z_0-9]*(' "$header" | tr -d '(' | sort -u | comm -23 "$symbols" - > "$folder/missing"
[ -s "$folder/missing" ] && { fail "the header does not declare:"; cat "$folder/missing"; }

readelf -d "$library" > "$folder/dynamic"
grep -q 'SONAME.*\[libsluice.so.1\]' "$folder/dynamic" || fail "the soname is not libsluice.so.1"
grep -iE 'NEEDED.*(LLVM|MLIR|openmpi|libmpi|torch)' "$folder/dynamic" && fail "the library needs what it must not"
exit $((failures > 0))
