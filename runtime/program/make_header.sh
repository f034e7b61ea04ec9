#!/bin/bash
# usage: make_header.sh program|enums SCHEMA HEADER   the C++ of program.fbs by flatc, in two headers
#
# program: all but enumerations, which are those of runtime/base/enums.h. enums: only these, as plain C++ with flatc's
# names and ranges.
set -euo pipefail
part=$1 schema=$2 header=$3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
flatc --cpp --scoped-enums -o "$dir" "$schema"
case $part in
  program)
    sed -e '/^enum class/,/^}/d' -e '/^inline const .*Enum/,/^}/d' \
      -e 's|^#include .*|&\n#include "runtime/base/enums.h"|' "$dir"/*_generated.h > "$header"
    ;;
  enums)
    {
      printf '#pragma once\n\n#include <cstdint>\n\nnamespace sluice {\n\n'
      sed -n -e '/^enum class/,/^}/p' -e '/ \*EnumNames/,/^}/{s/EnumNames\(.*\)()/enumNames(\1)/;p}' "$dir"/*_generated.h
      printf '\n}  // namespace sluice\n'
    } > "$header"
    ;;
  *) echo "make_header.sh: error: unknown part '$part'" >&2; exit 2 ;;
esac
