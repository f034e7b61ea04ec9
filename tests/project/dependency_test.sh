#!/bin/bash
# usage: dependency_test.sh RUNTIME_DEPS COMPILER_DEPS EXEC_DEPS DEVICE_DEPS SIM_DEPS   lists of labels made by genquery
set -u
failures=0

# refuse LIST PATTERN WHY
refuse() {
  if grep -E "$2" "$1"; then
    echo "FAIL: $3"
    failures=$((failures + 1))
  fi
}
# A list that names nothing would pass every check.
expect() { grep -qE "$2" "$1" || { echo "FAIL: $1 does not name $2"; failures=$((failures + 1)); }; }

expect "$1" '^//runtime/exec:exec$'
expect "$2" '^//runtime/program:program$'
refuse "$1" '^(//compiler|@llvm19//|@nlohmann_json//|//tools)' 'the runtime depends on compiler, LLVM, JSON or tools'
expect "$2" '^//runtime/routing:routing$'
expect "$2" '^//runtime/cost:cost$'
expect "$2" '^//runtime/sim:sim$'
refuse "$2" '^//(ops|runtime/(abi|cpu|workers|api))[/:]' 'the compiler depends on kernels, on a device that computes, or on the interfaces'
expect "$3" '^//runtime/routing:routing$'
refuse "$3" '^//(ops|runtime/(abi|cpu|workers|api))[/:]' 'runtime/exec depends on kernels, on a device or on the interfaces'
expect "$4" '^//runtime/exec:exec$'
refuse "$4" '^//runtime/(api|trace)' 'a device depends on the interfaces'
expect "$5" '^//runtime/exec:exec$'
refuse "$5" '^(//compiler|//ops|//tools|@llvm19//|@nlohmann_json//|//runtime/(cpu|workers|api))[/:]?' 'the simulator depends on compiler, JSON, kernels or interfaces'
exit $((failures > 0))
