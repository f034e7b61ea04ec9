#!/bin/bash
# usage: damage.sh PROGRAM SCRATCH   whichever byte is wrong, verify must end with 0, or with 1 and a message
set -u
size=$(stat -Lc %s "$1")
for i in $(seq 0 39); do
  at=$((i * 7919 % size))
  cp "$1" "$2"
  chmod u+w "$2"
  printf '\xa5' | dd of="$2" bs=1 seek="$at" conv=notrunc status=none
  message=$(timeout 20 sluice verify "$2" 2>&1 >/dev/null)
  status=$?
  case $status in
    0) ;;
    1) case $message in "sluice: error: "*) ;; *) echo "byte $at: no message: $message"; exit 1 ;; esac ;;
    *) echo "byte $at: exit status $status"; exit 1 ;;
  esac
done
