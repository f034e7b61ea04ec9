#!/bin/bash
# /usr/bin/python3 by name: another one may come first on the PATH.
exec /usr/bin/python3 "$(dirname "$0")/rooms_test.py" "$@"
