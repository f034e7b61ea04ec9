#!/bin/bash
echo "SKIP: built without UCX (libucx-dev is not installed)"
