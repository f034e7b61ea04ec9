#!/bin/bash
echo "SKIP: built without MPI (libopenmpi-dev is not installed)"
