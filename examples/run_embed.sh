#!/bin/bash
# usage: run_embed.sh EMBED PROGRAM   the example runs, and says what is wrong with a file that is no program
set -eu
"$1" "$2"
if message=$("$1" "$0" 2>&1); then
  echo "found success for a file that is no program, expected exit status 1"
  exit 1
fi
case $message in
  "embed: error: "*) ;;
  *) echo "found no message, expected embed: error: ..."; exit 1 ;;
esac
