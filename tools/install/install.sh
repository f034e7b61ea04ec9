#!/bin/bash
# usage: bazel run //tools/install -- --prefix DIR
#
# Installs the C and C++ interfaces (headers, shared library, files for pkg-config and CMake), all tools, target and graph
# files, and examples under DIR: include, lib, bin, share. What is there is replaced file by file. The folder may be moved
# later: nothing of it has its path inside.
set -euo pipefail

refuse() { echo "install: error: $1" >&2; exit "${2:-1}"; }

prefix=
while [ $# -gt 0 ]; do
  case $1 in
    --prefix) [ $# -ge 2 ] || refuse "--prefix without a folder" 2; prefix=$2; shift 2 ;;
    --prefix=*) prefix=${1#*=}; shift ;;
    -h | --help) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) refuse "unknown argument '$1', expected --prefix DIR" 2 ;;
  esac
done
[ -n "$prefix" ] || refuse "no folder given, expected --prefix DIR" 2
case $prefix in
  /*) ;;
  *) prefix=${BUILD_WORKING_DIRECTORY:-$PWD}/$prefix ;;  # from where the user called bazel
esac

[ -d "$0.runfiles/sluice" ] && cd "$0.runfiles/sluice"
header=runtime/api/sluice.h
[ -f "$header" ] || refuse "run it by bazel: $header is not here"
number() { sed -n "s/^#define SLUICE_ABI_$1 //p" "$header"; }
major=$(number MAJOR) minor=$(number MINOR)

# put MODE FILE DESTINATION   a reader, or a program that runs, keeps the old file or has the new one
put() {
  mkdir -p "$(dirname "$prefix/$3")" || refuse "cannot make the folder of $prefix/$3"
  pending=$prefix/$3.new.$$
  cp -L "$2" "$pending" && chmod "$1" "$pending" && mv -fT "$pending" "$prefix/$3" || refuse "cannot write $prefix/$3"
}
link() { ln -sfn "$1" "$prefix/lib/$2.new.$$" && mv -fT "$prefix/lib/$2.new.$$" "$prefix/lib/$2"; }

filled=$(mktemp) pending=
trap 'rm -f "$filled" "$pending"' EXIT  # when it is interrupted, too
# put, with @MAJOR@ and @MINOR@ filled in
put_filled() { sed "s/@MAJOR@/$major/g; s/@MINOR@/$minor/g" "$1" > "$filled"; put 644 "$filled" "$2"; }

put 644 LICENSE share/doc/sluice/LICENSE
for example in embed.c embed.cc embed_ranks.c; do put 644 "examples/$example" "share/doc/sluice/examples/$example"; done
put 644 "$header" include/sluice.h
put 644 "${header}pp" include/sluice.hpp
put 755 runtime/api/libsluice.so "lib/libsluice.so.$major.$minor"
link "libsluice.so.$major.$minor" "libsluice.so.$major"
link "libsluice.so.$major" libsluice.so
put_filled tools/install/sluice.pc.in lib/pkgconfig/sluice.pc
for file in sluice-config.cmake sluice-config-version.cmake; do
  put_filled "tools/install/$file.in" "lib/cmake/sluice/$file"
done
for tool in sluice sluice-bench sluice-mpi sluice-opt sluicec; do put 755 "tools/$tool" "bin/$tool"; done
find -L targets graphs -name '*.json' | while read -r file; do put 644 "$file" "share/sluice/$file"; done
echo "installed the library $major.$minor and the tools under $prefix"
