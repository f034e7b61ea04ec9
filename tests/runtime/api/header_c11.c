/* Compiled as C11, -pedantic: sluice.h is all that a C program includes. */
#include "runtime/api/sluice.h"

int sluice_test_header_alone(void);
int sluice_test_header_alone(void) { return sluice_abi_version() == SLUICE_ABI_VERSION; }
