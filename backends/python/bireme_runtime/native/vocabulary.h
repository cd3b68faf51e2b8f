/* Exact string vocabularies, as vocabulary.py lays them out. */
#ifndef BIREME_VOCABULARY_H
#define BIREME_VOCABULARY_H

#include "bireme.h"
#include "text.h"

void vocabulary_find(const bireme_id *step, const text *texts, int64_t count, int64_t *ids);

#endif
