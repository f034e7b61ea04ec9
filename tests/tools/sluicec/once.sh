#!/bin/bash
# usage: once.sh FILE COMMAND...   runs the command with @ replaced by a pipe that gives FILE once: reading it a second
# time never ends
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkfifo "$folder/graph.json"
cat "$1" > "$folder/graph.json" &
shift
timeout 300 "${@//@/$folder/graph.json}"
status=$?
kill $! 2> /dev/null
exit $status
