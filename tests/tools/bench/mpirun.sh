#!/bin/bash
# usage: mpirun.sh SLUICE_BENCH SLUICE_MPI: checks that `sluice bench --transport mpi` starts ranks by mpirun, and
# reports what is missing.
set -uo pipefail
. "$(dirname "$0")/../../testing/own_mpi.sh"
bench=$(realpath "$1") mpi=$(realpath "$2")
if ! command -v mpirun > /dev/null; then echo "SKIP: there is no mpirun"; exit 0; fi
# ThreadSanitizer does not see how MPI's own threads and memory agree
if grep -aq __tsan_init "$mpi"; then echo "SKIP: MPI is not instrumented"; exit 0; fi
work=$(mktemp -d /tmp/sl_XXXXXX)
trap 'rm -rf "$work"' EXIT
own_mpi "$work"
export SLUICE_TARGETS=$PWD/targets
mkdir "$work/with" "$work/without" "$work/bin"
cp "$bench" "$work/with/sluice-bench" && cp "$mpi" "$work/with/sluice-mpi" && cp "$bench" "$work/without/"
bench() { timeout 120 "$@" > "$work/out" 2> "$work/err" < /dev/null; }
fail() { echo "FAIL: $1"; cat "$work/out" "$work/err"; exit 1; }
found() { grep -Eq -- "$1" "$work/$2" || fail "expected '$1' in $2"; }

# by messages, so that the transport has something to count
SLUICE_MPI_NEIGHBOURS=messages bench "$work/with/sluice-bench" --transport mpi --case tiny --ep 2,4 --repeat 2 \
  --json "$work/ranks.json" || fail "the bench ended with status $?"
found '^  transport mpi, ' out
found 'orders +puts +signals +messages +flushes' out
found '^ +2 +[0-9]+ +forward ' out
found '^ +4 +[0-9]+ +backward ' out
/usr/bin/python3 - "$work/ranks.json" << 'CHECK' || fail "the JSON is not right"
import json, sys
root = json.load(open(sys.argv[1]))
assert root["transport"] == "mpi" and "link" not in root
assert [case["ep"] for case in root["cases"]] == [2, 4]
for case in root["cases"]:
    assert [p["entry"] for p in case["passes"]] == ["forward", "backward"]
    for p in case["passes"]:
        assert len(p["wall_seconds"]["all"]) == 2 and p["rows"] == 256, p
        assert min(p["transport"]["messages"]) > 0 and min(p["transport"]["flushes"]) > 0, p
CHECK
[ -z "$(find "$work" -maxdepth 1 -name 'sluice-bench-*')" ] || fail "files of a job are left"

bench "$work/with/sluice-bench" --transport mpi --case tiny --ep 2 --repeat 1 --pass backward --markdown ||
  fail "the bench ended with status $?"
found '^\| mpi \| 2 \| backward \|' out

SLUICE_MPI_NEIGHBOURS=messages bench "$work/with/sluice-bench" --transport mpi --case linear --rows 64 --in 48 --out 96 \
  --tp 2 --repeat 1 || fail "the bench ended with status $?"
found '^column parallel, 48 -> 96, 64 tokens in all, each at one rank$' out
found '^row parallel, 48 -> 96, 64 tokens in all, each at one rank$' out
found '^ +2 +[0-9]+ +backward ' out

bench env PATH="$work/bin" "$work/with/sluice-bench" --transport mpi --case tiny --ep 2 && fail "found an mpirun"
found '^sluice: error: --transport mpi: there is no mpirun on the PATH' err
bench "$work/without/sluice-bench" --transport mpi --case tiny --ep 2 && fail "found a sluice-mpi"
found '^sluice: error: --transport mpi: there is no sluice-mpi next to sluice-bench or on the PATH' err

# a job that fails: by its own words, and how it ended; ranks get a program and make the rest
printf '#!/bin/bash\necho "given $(ls "${2%%/*}" | xargs)" >&2\necho "sluice: error: no luck" >&2\nexit 3\n' \
  > "$work/without/sluice-mpi"
chmod +x "$work/without/sluice-mpi"
bench "$work/without/sluice-bench" --transport mpi --case tiny --ep 2 && fail "took a failed job"
found 'no luck' err
found '^given layer0.slp$' err
found '^sluice: error: .*mpirun ended with status 3' err
[ -z "$(find "$work" -maxdepth 1 -name 'sluice-bench-*')" ] || fail "files of a job are left"
