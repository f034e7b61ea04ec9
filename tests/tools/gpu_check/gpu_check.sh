#!/bin/bash
# usage: gpu_check.sh GPU_CHECK LAYER
#
# Without a GPU every check that needs one fails with a reason, the JSON file has it, and the exit status is 1.
set -uo pipefail
tool=$1 layer=$2
failed=0
check() { "${@:2}" || { echo "FAILED: $1"; failed=1; }; }
"$tool" "$layer" --device cuda:1000 --runs 1 --json "$TEST_TMPDIR/results.json" > "$TEST_TMPDIR/out"
check "exit status" test $? = 1
check "a line for each check, with the reason: $(cat "$TEST_TMPDIR/out")" \
  test "$(grep -c "^FAILED .*device 'cuda:1000': " "$TEST_TMPDIR/out")" = 6
check "probes come first" grep -q '^FAILED probes ' <(head -1 "$TEST_TMPDIR/out")
check "the totals" grep -qx '0 passed, 6 failed' "$TEST_TMPDIR/out"
check "the results as JSON" /usr/bin/python3 - "$TEST_TMPDIR/results.json" << 'SCRIPT'
import json, sys
results = json.load(open(sys.argv[1]))
assert len(results) == 6 and not any(each["passed"] for each in results), results
SCRIPT
"$tool" --device cuda:1000 > "$TEST_TMPDIR/probes"
check "without a program only probes" grep -qx '0 passed, 1 failed' "$TEST_TMPDIR/probes"
"$tool" "$layer" --no-probes --device cuda:1000 --runs 1 > "$TEST_TMPDIR/programs"
check "programs without probes" grep -qx '0 passed, 5 failed' "$TEST_TMPDIR/programs"
"$tool" "$layer" --blocks 0 > /dev/null 2> "$TEST_TMPDIR/usage"
check "wrong usage" test $? = 2
exit $failed
