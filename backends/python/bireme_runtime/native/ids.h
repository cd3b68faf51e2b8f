/* Id steps: from the elements of a feature to rows of a table. */
#ifndef BIREME_IDS_H
#define BIREME_IDS_H

#include "bireme.h"
#include "text.h"

/* A source of one request. */
typedef struct {
    int64_t type;
    int64_t rows;
    int64_t count;    /* elements */
    int64_t length;   /* elements of a row */
    const void *data; /* numbers, or int64 ids */
    const text *texts;
} elements;

/* Ids of all elements. Returns `room`, filled, or the source's own memory where that already holds them. */
const int64_t *ids_make(const bireme_id *step, const elements *source, const int64_t *of, int64_t *room);

#endif
