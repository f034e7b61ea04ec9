#!/bin/bash
# usage: cmake_test.sh ARCHIVE   CMake configures what the archive has, with Bazel's options, and compiles some of it
#
# All of it is built and run by `tools/ci/run_tests.py cmake`.
set -euo pipefail
archive=$PWD/$1
fail() { echo "FAIL: $1"; exit 1; }
command -v cmake > /dev/null || { echo "skipped: there is no cmake"; exit 0; }
folder=$(mktemp -d -p "${TEST_TMPDIR-}")
trap 'rm -rf "$folder"' EXIT
cd "$folder"
tar xzf "$archive"
cd sluice_gpu

# configure FOLDER WITHOUT: how g++ is called is in FOLDER.calls afterwards
configure() {
  cmake -G "Unix Makefiles" -S tools/cmake -B "$1" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON "-DSLUICE_WITHOUT=$2" > cmake.log 2>&1 ||
    { cat cmake.log; fail "cmake without '$2'"; }
  sed -n 's/^ *"command": "\(.*\)",$/\1/p' "$1/compile_commands.json" > "$1.calls"
}
# expect FOLDER FILE [OPTION]: the file is compiled, with the option; refuse FOLDER FILE: it is not
expect() { grep -- "-c .*/$2\$" "$1.calls" | grep -q -- "${3-}" || fail "$1 does not compile $2 ${3-}"; }
refuse() { ! grep -q -- "-c .*/$2\$" "$1.calls" || fail "$1 compiles $2"; }

configure plain "cuda;hwloc"
grep -q "nvcc was not found" cmake.log || fail "nothing is said of nvcc"
for file in runtime/exec/step.cc runtime/comm/mpi/without.cc runtime/workers/cores_plain.cc runtime/gpu/cuda/without.cc \
            tools/gpu_check/gpu_check.cc ops/gpu/model/machine.cc; do
  expect plain $file
done
if [ -e third_party/include/catch2/catch.hpp ]; then
  for file in tests/runtime/gpu/step_test.cc tests/gpu/chain_test.cc tests/gpu/probes_test.cc; do expect plain $file; done
fi
for file in runtime/workers/cores.cc tools/cli/run_ranks.cc tests/gpu/mutant_main.cc; do refuse plain $file; done
expect plain ops/cpu/products_avx512.cc -mavx512bf16
expect plain ops/cpu/products_amx.cc -mavx512bf16
expect plain ops/cpu/products_avxvnni.cc -mavxvnni
expect plain ops/cpu/products_avx2.cc "-ffp-contract=off .*-mavx2 "
expect plain ops/cpu/rows_portable.cc -ffp-contract=off
if grep -- "-mavx" plain.calls | grep -vq "ops/cpu/[a-z]*_a[vm]x"; then fail "another file than a kernel's has options of an instruction set"; fi

# some files, with headers of libraries and generated ones; CMake names them by their paths
for file in runtime/program/decode runtime/workers/cores_plain ops/cpu/rows_avx512 ops/gpu/model/fiber; do
  make -C plain "${PWD#/}/$file.o" > make.log 2>&1 || { cat make.log; fail "compiling $file.cc"; }
done

nvcc=${NVCC:-/usr/local/cuda/bin/nvcc}
if [ -x "$nvcc" ]; then
  # by a script in another folder, as some machines have it: CUDA's library does not lie beside that
  printf '#!/bin/sh\nexec %s "$@"\n' "$nvcc" > nvcc
  chmod +x nvcc
  export NVCC=$PWD/nvcc
fi
configure whole ""
if [ -x "$nvcc" ]; then
  for file in ops/gpu/chain.cu ops/gpu/probes.cu runtime/gpu/cuda/driver.cu; do
    grep -q -- "code=sm_90a .*-c .*/$file " whole/CMakeFiles/sluice.dir/build.make || fail "nvcc does not compile $file"
  done
  refuse whole runtime/gpu/cuda/without.cc
fi
if [ -e /usr/include/hwloc.h ]; then
  expect whole runtime/workers/cores.cc
  refuse whole runtime/workers/cores_plain.cc
fi
