/* The kernels of rows.c for rows with columns: a value is the number of a payload (payloads.c). */
#define DS_RECORDS
#include "querytime/rows.c"
