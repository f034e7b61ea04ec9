#!/bin/bash
# usage: ucx_ranks.sh PROGRAM RANKS [NAME=VALUE...]: runs the cases of all networks with these variables.
set -uo pipefail
program=$1 ranks=$2
shift 2
exec env "$@" "$program" "$ranks"
