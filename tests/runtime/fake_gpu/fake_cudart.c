// Stands in for libcudart on machines without a GPU: the functions that bireme_runtime/cudart.py uses, on the
// host's memory. Streams are threads, so that what is not waited for is really not there yet; while a stream
// captures, copies, host functions and event records are noted instead of executed, and a launch replays them.
//
// Beside CUDA's names: fakeHostFunction (what a kernel launch is here), fakeIsCapturing, fakeLimits (how much
// memory there is, how long a copy takes), fakeLaunches (how many graphs were launched).
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MEMORY = 2, INVALID = 1, NOT_READY = 600, UNSUPPORTED = 900, NO_CAPTURE = 905 };
enum { COPY, CALL, RECORD };
typedef void (*Function)(size_t);

typedef struct Event { pthread_mutex_t lock; pthread_cond_t change; long recorded, done; double time; } Event;
typedef struct Op { int kind; void *to; const void *from; size_t size; Function call; Event *event; long number; } Op;
typedef struct Graph { Op *ops; size_t count; } Graph;
typedef struct Stream {
    pthread_t thread; pthread_mutex_t lock; pthread_cond_t change;
    Op *ops; size_t count, next; int ending; Graph *capturing;
} Stream;

static size_t limit = (size_t)1 << 40, used;
static int delay;
static long launches;
static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

static void append(Op **ops, size_t *count, Op op) {
    *ops = realloc(*ops, (*count + 1) * sizeof(Op));
    (*ops)[(*count)++] = op;
}

static void perform(Op op) {
    if (op.kind == COPY) {
        if (delay) usleep(delay);
        memcpy(op.to, op.from, op.size);
    } else if (op.kind == CALL) {
        op.call(op.number);
    } else {
        pthread_mutex_lock(&op.event->lock);
        op.event->done = op.number;
        op.event->time = now();
        pthread_cond_broadcast(&op.event->change);
        pthread_mutex_unlock(&op.event->lock);
    }
}

static void *run(void *argument) {
    Stream *s = argument;
    pthread_mutex_lock(&s->lock);
    for (;;) {
        while (s->next == s->count && !s->ending) pthread_cond_wait(&s->change, &s->lock);
        if (s->next == s->count) break;
        Op op = s->ops[s->next];
        pthread_mutex_unlock(&s->lock);
        perform(op);
        pthread_mutex_lock(&s->lock);
        if (++s->next == s->count) s->next = s->count = 0;
        pthread_cond_broadcast(&s->change);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static int enqueue(Stream *s, Op op) {
    if (s->capturing) {
        append(&s->capturing->ops, &s->capturing->count, op);
        return 0;
    }
    pthread_mutex_lock(&s->lock);
    append(&s->ops, &s->count, op);
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int cudaRuntimeGetVersion(int *v) { *v = 12000; return 0; }
int cudaGetDeviceCount(int *n) { *n = 1; return 0; }
int cudaSetDevice(int d) { return d ? INVALID : 0; }
int cudaDeviceGetAttribute(int *v, int which, int d) { (void)d; *v = which == 75 ? 9 : 0; return 0; }
int cudaGetDeviceProperties(void *p, int d) { (void)d; strcpy(p, "Stand-in GPU"); return 0; }
int cudaGetLastError(void) { return 0; }
const char *cudaGetErrorName(int e) { return e == MEMORY ? "cudaErrorMemoryAllocation" : "cudaErrorOther"; }
const char *cudaGetErrorString(int e) { return e == MEMORY ? "out of memory" : "something else"; }

int cudaMemGetInfo(size_t *left, size_t *all) { *all = limit; *left = limit - used; return 0; }

int cudaMalloc(void **p, size_t n) {
    pthread_mutex_lock(&memory_lock);
    int fits = used + n <= limit;
    if (fits) used += n;
    pthread_mutex_unlock(&memory_lock);
    if (!fits || posix_memalign(p, 256, n + 256)) return MEMORY;
    memset(*p, 0xFF, n + 256);
    memcpy((char *)*p, &n, sizeof n);  // for cudaFree; whoever reads before writing reads nonsense
    *p = (char *)*p + 256;
    return 0;
}

int cudaFree(void *p) {
    size_t n;
    memcpy(&n, (char *)p - 256, sizeof n);
    pthread_mutex_lock(&memory_lock);
    used -= n;
    pthread_mutex_unlock(&memory_lock);
    free((char *)p - 256);
    return 0;
}

int cudaMallocHost(void **p, size_t n) {
    if (posix_memalign(p, 256, n)) return MEMORY;
    memset(*p, 0xFF, n);
    return 0;
}
int cudaFreeHost(void *p) { free(p); return 0; }

int cudaStreamCreateWithFlags(void **p, unsigned flags) {
    Stream *s = calloc(1, sizeof *s);
    (void)flags;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->change, NULL);
    pthread_create(&s->thread, NULL, run, s);
    *p = s;
    return 0;
}

int cudaStreamSynchronize(Stream *s) {
    if (s->capturing) return UNSUPPORTED;
    pthread_mutex_lock(&s->lock);
    while (s->next != s->count) pthread_cond_wait(&s->change, &s->lock);
    pthread_mutex_unlock(&s->lock);
    return 0;
}

int cudaStreamDestroy(Stream *s) {
    pthread_mutex_lock(&s->lock);
    s->ending = 1;
    pthread_cond_broadcast(&s->change);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    free(s->ops);
    free(s);
    return 0;
}

int cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, Stream *s) {
    (void)kind;
    return enqueue(s, (Op){.kind = COPY, .to = to, .from = from, .size = n});
}

int fakeHostFunction(Stream *s, Function call, size_t argument) {
    return enqueue(s, (Op){.kind = CALL, .call = call, .number = (long)argument});
}

int cudaEventCreateWithFlags(void **p, unsigned flags) {
    Event *e = calloc(1, sizeof *e);
    (void)flags;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->change, NULL);
    *p = e;
    return 0;
}
// Not freed: the stream that recorded it may be about to let go of its lock.
int cudaEventDestroy(Event *e) { (void)e; return 0; }

static Op record_of(Event *e) {
    pthread_mutex_lock(&e->lock);
    long number = ++e->recorded;
    pthread_mutex_unlock(&e->lock);
    return (Op){.kind = RECORD, .event = e, .number = number};
}

int cudaEventRecord(Event *e, Stream *s) {
    if (s->capturing) return 0;  // orders work inside the graph; nobody outside sees it happen
    return enqueue(s, record_of(e));
}

int cudaEventRecordWithFlags(Event *e, Stream *s, unsigned flags) {
    if (!s->capturing || flags != 1) return INVALID;
    return enqueue(s, (Op){.kind = RECORD, .event = e});
}

int cudaEventQuery(Event *e) {
    pthread_mutex_lock(&e->lock);
    int ready = e->done >= e->recorded;
    pthread_mutex_unlock(&e->lock);
    return ready ? 0 : NOT_READY;
}

int cudaEventSynchronize(Event *e) {
    pthread_mutex_lock(&e->lock);
    long wanted = e->recorded;
    while (e->done < wanted) pthread_cond_wait(&e->change, &e->lock);
    pthread_mutex_unlock(&e->lock);
    return 0;
}

int cudaEventElapsedTime(float *ms, Event *a, Event *b) {
    if (!a->done || !b->done) return INVALID;
    *ms = (float)(b->time - a->time);
    return 0;
}

int cudaStreamBeginCapture(Stream *s, int mode) {
    if (s->capturing || mode != 1) return INVALID;
    s->capturing = calloc(1, sizeof(Graph));
    return 0;
}

int cudaStreamEndCapture(Stream *s, void **graph) {
    if (!s->capturing) return NO_CAPTURE;
    *graph = s->capturing;
    s->capturing = NULL;
    return 0;
}

int cudaGraphInstantiate(void **executable, Graph *graph, unsigned long long flags) {
    Graph *copy = malloc(sizeof *copy);
    if (flags) return INVALID;
    copy->count = graph->count;
    copy->ops = malloc(graph->count * sizeof(Op) + 1);
    memcpy(copy->ops, graph->ops, graph->count * sizeof(Op));
    *executable = copy;
    return 0;
}

int cudaGraphLaunch(Graph *graph, Stream *s) {
    __sync_fetch_and_add(&launches, 1);
    for (size_t i = 0; i < graph->count; i++)
        enqueue(s, graph->ops[i].kind == RECORD ? record_of(graph->ops[i].event) : graph->ops[i]);
    return 0;
}

int cudaGraphDestroy(Graph *graph) { free(graph->ops); free(graph); return 0; }
int cudaGraphExecDestroy(Graph *graph) { return cudaGraphDestroy(graph); }

int fakeIsCapturing(Stream *s) { return s->capturing != NULL; }
void fakeLimits(size_t memory, int microseconds) { limit = memory; delay = microseconds; }
long fakeLaunches(void) { return launches; }
size_t fakeUsed(void) { return used; }
