/* The kernels of rows_by_key.c for rows with columns: a value is the number of a payload. */
#define DS_RECORDS
#include "querytime/rows_by_key.c"
