/* Which variant of rows.c this processor runs. */
#ifndef BIREME_DISPATCH_H
#define BIREME_DISPATCH_H

#include "rows.h"

rows_function *dispatch_rows(void);

#endif
