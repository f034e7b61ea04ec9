#!/bin/bash
# Kernel libraries of one instruction set define no symbol that the linker may merge with another library's.
set -u
archives=0
failed=0
for file in "$@"; do
  case "$file" in *.a) ;; *) continue ;; esac
  archives=$((archives + 1))
  shared=$(nm -C "$file" | grep -E '^[0-9a-f]+ [WVu] ')
  if [ -n "$shared" ]; then
    echo "$file defines symbols that may be merged:"
    echo "$shared"
    failed=1
  fi
done
if [ "$archives" -lt 3 ]; then
  echo "found $archives static libraries, expected 3 or more: $*"
  failed=1
fi
exit $failed
