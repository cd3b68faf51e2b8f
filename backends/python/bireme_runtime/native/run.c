/* From a batch to the two outputs: finds each request's tensors, makes ids, and lets rows.c write. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "dispatch.h"
#include "ids.h"
#include "rows.h"
#include "text.h"

typedef struct {
    bireme_program program;
    rows_function *rows;
    /* Room that grows to the largest request so far and is used again. */
    elements *sources;
    const int64_t **ids;
    int64_t *id_room;
    text *texts;
    const char **addresses;
    float *weights;
    int64_t *counts;
    int64_t id_size, text_size, address_size, count_size;
} runner;

void *bireme_open(const bireme_program *program) {
    runner *r = calloc(1, sizeof *r);
    if (!r) return 0;
    r->program = *program;
    r->rows = dispatch_rows();
    r->sources = calloc((size_t)program->source_count + 1, sizeof *r->sources);
    r->ids = calloc((size_t)program->id_count + 1, sizeof *r->ids);
    if (r->sources && r->ids) return r;
    bireme_close(r);
    return 0;
}

void bireme_close(void *handle) {
    runner *r = handle;
    if (!r) return;
    free(r->sources);
    free(r->ids);
    free(r->id_room);
    free(r->texts);
    free(r->addresses);
    free(r->weights);
    free(r->counts);
    free(r);
}

/* Room for `wanted` elements. */
static int grow(void **room, int64_t *size, int64_t wanted, size_t element) {
    if (wanted <= *size) return 1;
    wanted += wanted / 2 + 64;
    void *larger = realloc(*room, (size_t)wanted * element);
    if (!larger) return 0;
    *room = larger;
    *size = wanted;
    return 1;
}

/* Floats are finite, and bools 0 or 1: what else is true is numpy's matter. */
static int all_valid(const elements *s) {
    if (s->type == TYPE_F32) {
        const uint32_t *bits = s->data;
        uint32_t bad = 0;
        for (int64_t i = 0; i < s->count; i++) bad |= (bits[i] & 0x7F800000u) == 0x7F800000u;
        return !bad;
    }
    if (s->type == TYPE_F64) {
        const uint64_t *bits = s->data;
        uint64_t bad = 0;
        for (int64_t i = 0; i < s->count; i++) bad |= (bits[i] & 0x7FF0000000000000u) == 0x7FF0000000000000u;
        return !bad;
    }
    if (s->type == TYPE_BOOL) {
        const uint8_t *bytes = s->data;
        uint8_t all = 0;
        for (int64_t i = 0; i < s->count; i++) all |= bytes[i];
        return all <= 1;
    }
    return 1;
}

static int64_t bytes_of(int64_t type) {
    return type == TYPE_I32 || type == TYPE_F32 ? 4 : type == TYPE_BOOL || type == TYPE_TEXT ? 1 : 8;
}

/* Where a request's sources are: `at` moves each stage's pointer on behind them. */
static int64_t find_sources(runner *r, int64_t users, int64_t candidates, const int64_t *sizes, const char **at,
                            const int64_t **ready) {
    int64_t texts = 0;
    for (int64_t i = 0; i < r->program.source_count; i++) {
        const bireme_source *source = r->program.sources + i;
        elements *s = r->sources + i;
        s->type = source->type;
        s->length = source->length < 0 ? 1 : sizes[source->length];
        s->rows = source->side == SIDE_ITEM ? users * candidates : users;
        s->count = s->rows * s->length;
        s->texts = 0;
        if (s->type == TYPE_READY) {
            s->data = ready[source->bytes];
            ready[source->bytes] += s->count;
        } else {
            int64_t bytes = s->type == TYPE_TEXT ? sizes[source->bytes] : s->count * bytes_of(s->type);
            s->data = at[s->type];
            at[s->type] += bytes;
            if (s->type == TYPE_TEXT) texts += s->count;
        }
    }
    if (!grow((void **)&r->texts, &r->text_size, texts, sizeof *r->texts)) return BIREME_NO_MEMORY;
    text *next = r->texts;
    for (int64_t i = 0; i < r->program.source_count; i++) {
        const bireme_source *source = r->program.sources + i;
        elements *s = r->sources + i;
        if (s->type == TYPE_TEXT) {
            if (!text_split(s->data, sizes[source->bytes], s->count, r->program.longest_text, next))
                return BIREME_UNUSUAL;
            if (source->checks & CHECK_UTF8 && !text_all_ascii(s->data, sizes[source->bytes]))
                for (int64_t k = 0; k < s->count; k++)
                    if (!text_is_utf8(next[k])) return BIREME_UNUSUAL;
            s->texts = next;
            next += s->count;
        } else if (!all_valid(s)) {
            return BIREME_UNUSUAL;
        }
    }
    return BIREME_DONE;
}

static int64_t make_ids(runner *r) {
    int64_t needed = 0;
    for (int64_t i = 0; i < r->program.id_count; i++) needed += r->sources[r->program.ids[i].source].count;
    if (!grow((void **)&r->id_room, &r->id_size, needed, sizeof *r->id_room)) return BIREME_NO_MEMORY;
    int64_t *room = r->id_room;
    for (int64_t i = 0; i < r->program.id_count; i++) {
        const bireme_id *step = r->program.ids + i;
        const elements *source = r->sources + step->source;
        r->ids[i] = ids_make(step, source, step->of < 0 ? 0 : r->ids[step->of], room);
        room += source->count;
    }
    return BIREME_DONE;
}

/* Room for what rows.c lists of the pooled blocks of one side: elements, and sequences. */
static int64_t room_for_pools(runner *r) {
    int64_t elements_of[2] = {0, 0}, rows_of[2] = {0, 0};
    for (int64_t i = 0; i < r->program.block_count; i++) {
        const bireme_block *b = r->program.blocks + i;
        if (b->op != BLOCK_POOL) continue;
        const elements *s = r->sources + b->source;
        elements_of[b->side] += s->count;
        rows_of[b->side] += s->rows;
    }
    int64_t most = elements_of[0] > elements_of[1] ? elements_of[0] : elements_of[1];
    int64_t rows = rows_of[0] > rows_of[1] ? rows_of[0] : rows_of[1];
    int64_t weights = r->address_size;
    int done = grow((void **)&r->weights, &weights, most, sizeof *r->weights)
               && grow((void **)&r->addresses, &r->address_size, most, sizeof *r->addresses)
               && grow((void **)&r->counts, &r->count_size, rows, sizeof *r->counts);
    return done ? BIREME_DONE : BIREME_NO_MEMORY;
}

int64_t bireme_run(void *handle, const bireme_batch *batch) {
    runner *r = handle;
    const bireme_program *p = &r->program;
    const int half = p->half && !batch->single;
    const int64_t size = half ? 2 : 4;
    const char *at[TYPE_COUNT];
    memcpy(at, batch->stages, sizeof at);
    char *user = batch->user, *items = batch->items;
    for (int64_t i = 0; i < batch->count; i++) {
        const int64_t users = batch->users[i], candidates = batch->candidates[i], padded = batch->padded[i];
        int64_t outcome = find_sources(r, users, candidates, batch->sizes + i * p->size_count, at,
                                       batch->ready);
        if (outcome == BIREME_DONE) outcome = make_ids(r);
        if (outcome == BIREME_DONE) outcome = room_for_pools(r);
        if (outcome != BIREME_DONE) return outcome;
        rows_work work = {
            .program = p, .sources = r->sources, .ids = r->ids, .half = half,
            .addresses = r->addresses, .weights = r->weights, .counts = r->counts,
        };
        work.blocks = p->blocks;
        work.block_count = p->user_blocks;
        work.rows = users;
        work.group = work.padded = users;
        work.output = user;
        work.width = p->user_width;
        if (!r->rows(&work)) return BIREME_UNUSUAL;
        work.blocks = p->blocks + p->user_blocks;
        work.block_count = p->block_count - p->user_blocks;
        work.rows = users * candidates;
        work.group = candidates;
        work.padded = padded;
        work.output = items;
        work.width = p->item_width;
        if (work.rows && !r->rows(&work)) return BIREME_UNUSUAL;
        user += users * p->user_width * size;
        items += users * padded * p->item_width * size;
    }
    return BIREME_DONE;
}
