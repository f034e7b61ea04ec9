#!/bin/bash
echo "SKIP: built without PyTorch (libtorch-dev and python3-torch are not installed)"
