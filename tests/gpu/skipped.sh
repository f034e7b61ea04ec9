#!/bin/bash
echo "SKIP: built without CUDA (found no nvcc)"
