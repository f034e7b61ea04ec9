#!/bin/bash
# usage: pack_sources.sh MANIFEST FOLDER ARCHIVE HEADER=PACKAGE...   for source_archive.bzl
#
# A line of the manifest: FILE PLACE. A header is a file or folder in /usr/include, of a package of Debian.
set -euo pipefail
manifest=$1 folder=$2 archive=$3
shift 3
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
while read -r file place; do
  mkdir -p "$dir/$folder/$(dirname "$place")"
  cp -L "$file" "$dir/$folder/$place"
done < "$manifest"
mkdir -p "$dir/$folder/third_party/include" "$dir/$folder/third_party/copyright"
for each in "$@"; do
  cp -rL "/usr/include/${each%=*}" "$dir/$folder/third_party/include/"
  cp -L "/usr/share/doc/${each#*=}/copyright" "$dir/$folder/third_party/copyright/${each#*=}"
done
tar czf "$archive" -C "$dir" --sort=name --owner=0 --group=0 --mtime=@0 "$folder"
