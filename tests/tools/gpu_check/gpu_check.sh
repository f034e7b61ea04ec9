#!/bin/bash
# usage: gpu_check.sh GPU_CHECK LAYER
#
# Without a GPU every check that needs one fails with a reason, the JSON file has it, and the exit status is 1.
set -uo pipefail
tool=$1 layer=$2
failed=0
check() { "${@:2}" || { echo "FAILED: $1"; failed=1; }; }
"$tool" --list > "$TEST_TMPDIR/list"
probes=$(wc -l < "$TEST_TMPDIR/list")
check "a list of probes on rungs: $(cat "$TEST_TMPDIR/list")" test "$(grep -c '^[0-4] ..*' "$TEST_TMPDIR/list")" = "$probes" -a "$probes" -gt 35
"$tool" "$layer" --device cuda:1000 --runs 1 --json "$TEST_TMPDIR/results.json" > "$TEST_TMPDIR/out"
check "exit status" test $? = 1
check "a line for each check, with the reason: $(cat "$TEST_TMPDIR/out")" \
  test "$(grep -c "^FAILED .*device 'cuda:1000': " "$TEST_TMPDIR/out")" = $((probes + 5))
check "probes come first" grep -q '^FAILED machine ' <(head -1 "$TEST_TMPDIR/out")
check "the totals" grep -qx "0 passed, $((probes + 5)) failed" "$TEST_TMPDIR/out"
check "the results as JSON" /usr/bin/python3 - "$TEST_TMPDIR/results.json" $((probes + 5)) << 'SCRIPT'
import json, sys
results = json.load(open(sys.argv[1]))
assert len(results) == int(sys.argv[2]) and not any(each["passed"] for each in results), results
SCRIPT
"$tool" --device cuda:1000 > "$TEST_TMPDIR/probes"
check "without a program only probes" grep -qx "0 passed, $probes failed" "$TEST_TMPDIR/probes"
"$tool" --device cuda:1000 --probe "phases of a barrier" --timeout 1 > "$TEST_TMPDIR/one"
check "one probe by its name" grep -q '^FAILED phases of a barrier ' "$TEST_TMPDIR/one"
check "and no other one" grep -qx '0 passed, 1 failed' "$TEST_TMPDIR/one"
"$tool" --probe nowhere 2> "$TEST_TMPDIR/unknown"
check "a name that none has" grep -q "found 'nowhere', expected a name that --list prints" "$TEST_TMPDIR/unknown"
"$tool" "$layer" --no-probes --device cuda:1000 --runs 1 > "$TEST_TMPDIR/programs"
check "programs without probes" grep -qx '0 passed, 5 failed' "$TEST_TMPDIR/programs"
"$tool" "$layer" --blocks 0 > /dev/null 2> "$TEST_TMPDIR/usage"
check "wrong usage" test $? = 2
exit $failed
