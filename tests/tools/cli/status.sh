#!/bin/bash
# usage: status.sh N COMMAND...   succeeds if the command ends with exit status N; its stderr follows its stdout
want=$1
shift
"$@" 2>&1
got=$?
[ "$got" -eq "$want" ] && exit 0
echo "status.sh: found exit status $got, expected $want"
exit 1
