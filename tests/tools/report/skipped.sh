#!/bin/bash
echo "SKIP: built without the page of sluice report (esbuild and node-d3 are not installed)"
