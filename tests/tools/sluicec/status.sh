#!/bin/bash
# usage: status.sh STATUS COMMAND...   succeeds if the command ends with that exit status
expected=$1
shift
"$@"
found=$?
if [ "$found" -ne "$expected" ]; then
  echo "status.sh: exit status $found, expected $expected"
  exit 1
fi
