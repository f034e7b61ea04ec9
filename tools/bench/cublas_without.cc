#include "tools/bench/cublas_without.inc"
