/* A libcuda.so.1 without a GPU, for the tests of both runners: the functions that they use, with what the real ones check.
 *
 * Memory is the host's and kernels only leave a line in a log; or fake_cuda_device gives functions of the test that
 * hold the memory and execute the kernels. Environment: FAKE_CUDA_LOG names a file that gets a line a call,
 * FAKE_CUDA_FAIL a function that fails, FAKE_CUDA_SM the compute capability (80). Times are half a millisecond a launch.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201, INVALID_IMAGE = 200, NOT_FOUND = 500, CAPTURING = 900 };

struct device {
    uint64_t (*allocate)(size_t);
    int (*store)(uint64_t, const void *, size_t);
    int (*load)(void *, uint64_t, size_t);
    int (*launch)(const char *kernel, const unsigned *dimensions, unsigned shared, const void *parameters, size_t size);
};
struct function { struct function *next; char name[300]; int most_shared; };
struct module { struct function *functions; };
struct record { struct record *next; struct function *function; unsigned dimensions[6], shared; size_t size; uint8_t parameters[4096]; };
struct graph { struct record *first, *last; };
struct CUstream_st { bool capturing; struct graph graph; };
struct event { unsigned long launches; };
struct allocation { struct allocation *next; uint64_t address; size_t size; };

static struct device device;
static struct allocation *allocations;
static unsigned long launches;
static int live, primary;
static _Thread_local void *stack[16];
static _Thread_local int depth;

void fake_cuda_device(const struct device *given) { device = *given; }

/* Objects that were made and not given back, and the depth of this thread's contexts where it is more than `contexts`. */
int fake_cuda_live(int contexts) { return live + (depth > contexts ? depth - contexts : 0); }

static void tell(const char *text) {
    const char *path = getenv("FAKE_CUDA_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s\n", text);
    fclose(file);
}

static bool fails(const char *name) {
    const char *wanted = getenv("FAKE_CUDA_FAIL");
    tell(name);
    return wanted && !strcmp(wanted, name);
}

#define CALL(name) do { if (fails(name)) return OUT_OF_MEMORY; } while (0)
#define IN_CONTEXT(name) do { CALL(name); if (!depth || !stack[depth - 1]) return NO_CONTEXT; } while (0)
#define MAKE(type, to) do { *(to) = calloc(1, sizeof(type)); live++; } while (0)

int cuInit(unsigned flags) { CALL("cuInit"); return flags ? INVALID_VALUE : 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetErrorString(int code, const char **text) { *text = code == 2 ? "out of memory" : code == 1 ? "invalid argument" : code == NOT_FOUND ? "named symbol not found" : "some error"; return 0; }
int cuGetErrorName(int code, const char **text) { (void)code; *text = "CUDA_ERROR"; return 0; }
int cuDeviceGetCount(int *count) { CALL("cuDeviceGetCount"); *count = 1; return 0; }
int cuDeviceGet(int *found, int number) { CALL("cuDeviceGet"); *found = number; return number ? INVALID_VALUE : 0; }
int cuDeviceGetName(char *name, int size, int number) { CALL("cuDeviceGetName"); (void)number; snprintf(name, (size_t)size, "Fake GPU"); return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int number) {
    const char *sm = getenv("FAKE_CUDA_SM");
    int capability = sm ? atoi(sm) : 80;
    CALL("cuDeviceGetAttribute");
    *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : -1;
    return number ? INVALID_VALUE : 0;
}
int cuDevicePrimaryCtxRetain(void **context, int number) { CALL("cuDevicePrimaryCtxRetain"); (void)number; live++; *context = &primary; return 0; }
int cuDevicePrimaryCtxRelease_v2(int number) { tell("cuDevicePrimaryCtxRelease"); (void)number; live--; return 0; }
int cuCtxGetCurrent(void **context) { CALL("cuCtxGetCurrent"); *context = depth ? stack[depth - 1] : NULL; return 0; }
int cuCtxSetCurrent(void *context) { CALL("cuCtxSetCurrent"); if (!depth) depth = 1; stack[depth - 1] = context; return 0; }
int cuCtxGetDevice(int *found) { IN_CONTEXT("cuCtxGetDevice"); *found = 0; return 0; }
int cuCtxPushCurrent_v2(void *context) { if (!context || depth == 16) return INVALID_VALUE; stack[depth++] = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { if (!depth) return NO_CONTEXT; *context = stack[--depth]; return 0; }
int cuCtxSynchronize(void) { IN_CONTEXT("cuCtxSynchronize"); return 0; }

int cuMemAlloc_v2(uint64_t *address, size_t size) {
    IN_CONTEXT("cuMemAlloc");
    if (!size) return INVALID_VALUE;
    if (size > (size_t)1 << 34) return OUT_OF_MEMORY;
    struct allocation *one;
    MAKE(struct allocation, &one);
    one->address = device.allocate ? device.allocate(size) : (uint64_t)(uintptr_t)aligned_alloc(256, (size + 255) / 256 * 256);
    one->size = size;
    one->next = allocations;
    allocations = one;
    *address = one->address;
    if (!device.allocate) memset((void *)(uintptr_t)*address, 0xff, size);
    return one->address ? 0 : OUT_OF_MEMORY;
}
int cuMemFree_v2(uint64_t address) {
    IN_CONTEXT("cuMemFree");
    for (struct allocation **place = &allocations; *place; place = &(*place)->next)
        if ((*place)->address == address) {
            struct allocation *one = *place;
            *place = one->next;
            if (!device.allocate) free((void *)(uintptr_t)address);
            free(one);
            live--;
            return 0;
        }
    return INVALID_VALUE;
}
static bool inside(uint64_t address, size_t size) {
    for (struct allocation *one = allocations; one; one = one->next)
        if (address >= one->address && address + size <= one->address + one->size) return true;
    return false;
}
static int store(uint64_t to, const void *from, size_t size) {
    if (!inside(to, size)) return INVALID_VALUE;
    if (device.store) return device.store(to, from, size);
    memcpy((void *)(uintptr_t)to, from, size);
    return 0;
}
static int load(void *to, uint64_t from, size_t size) {
    if (!inside(from, size)) return INVALID_VALUE;
    if (device.load) return device.load(to, from, size);
    memcpy(to, (const void *)(uintptr_t)from, size);
    return 0;
}
int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t size) { IN_CONTEXT("cuMemcpyHtoD"); return store(to, from, size); }
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t size) { IN_CONTEXT("cuMemcpyDtoH"); return load(to, from, size); }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t size, struct CUstream_st *stream) {
    IN_CONTEXT("cuMemcpyHtoDAsync");
    return stream && stream->capturing ? CAPTURING : store(to, from, size);
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t size, struct CUstream_st *stream) {
    IN_CONTEXT("cuMemcpyDtoHAsync");
    return stream && stream->capturing ? CAPTURING : load(to, from, size);
}
int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t size, struct CUstream_st *stream) {
    IN_CONTEXT("cuMemsetD8Async");
    if (stream && stream->capturing) return CAPTURING;
    void *bytes = malloc(size);
    memset(bytes, byte, size);
    int code = store(to, bytes, size);
    free(bytes);
    return code;
}

int cuModuleLoadData(struct module **module, const void *image) {
    IN_CONTEXT("cuModuleLoadData");
    if (memcmp(image, "\177ELF", 4)) return INVALID_IMAGE;
    MAKE(struct module, module);
    return 0;
}
int cuModuleUnload(struct module *module) {
    IN_CONTEXT("cuModuleUnload");
    for (struct function *one = module->functions, *next; one; one = next) {
        next = one->next;
        free(one);
    }
    free(module);
    live--;
    return 0;
}
int cuModuleGetFunction(struct function **function, struct module *module, const char *name) {
    IN_CONTEXT("cuModuleGetFunction");
    if (!strncmp(name, "absent", 6)) return NOT_FOUND;
    for (*function = module->functions; *function; *function = (*function)->next)
        if (!strcmp((*function)->name, name)) return 0;
    *function = calloc(1, sizeof **function);
    snprintf((*function)->name, sizeof (*function)->name, "%s", name);
    (*function)->most_shared = 48 << 10;
    (*function)->next = module->functions;
    module->functions = *function;
    return 0;
}
int cuFuncSetAttribute(struct function *function, int attribute, int value) {
    char line[400];
    snprintf(line, sizeof line, "attribute %s %d %d", function->name, attribute, value);
    tell(line);
    IN_CONTEXT("cuFuncSetAttribute");
    if (attribute != 8 || value < 0 || value > 227 << 10) return INVALID_VALUE;
    function->most_shared = value;
    return 0;
}

static int execute(const struct record *one) {
    const unsigned *d = one->dimensions;
    char line[9000];
    int used = snprintf(line, sizeof line, "launch %s (%u, %u, %u) (%u, %u, %u) %u ", one->function->name, d[0], d[1], d[2], d[3], d[4], d[5], one->shared);
    for (size_t k = 0; k < one->size; k++) used += snprintf(line + used, sizeof line - (size_t)used, "%02x", one->parameters[k]);
    tell(line);
    launches++;
    return device.launch ? device.launch(one->function->name, d, one->shared, one->parameters, one->size) : 0;
}
static void append(struct graph *graph, const struct record *one) {
    struct record *copy = malloc(sizeof *copy);
    *copy = *one;
    copy->next = NULL;
    if (graph->last) graph->last->next = copy;
    else graph->first = copy;
    graph->last = copy;
}
int cuLaunchKernel(struct function *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, struct CUstream_st *stream, void **values, void **extra) {
    IN_CONTEXT("cuLaunchKernel");
    struct record one = {NULL, function, {gx, gy, gz, bx, by, bz}, shared, 0, {0}};
    if (values || !extra || extra[0] != (void *)1 || extra[2] != (void *)2 || extra[4]) return INVALID_VALUE;
    one.size = *(const size_t *)extra[3];
    if (one.size > sizeof one.parameters || bx * by * bz > 1024 || (int)shared > function->most_shared) return INVALID_VALUE;
    memcpy(one.parameters, extra[1], one.size);
    if (!stream || !stream->capturing) return execute(&one);
    append(&stream->graph, &one);
    return 0;
}

int cuStreamCreate(struct CUstream_st **stream, unsigned flags) { IN_CONTEXT("cuStreamCreate"); (void)flags; MAKE(struct CUstream_st, stream); return 0; }
int cuStreamDestroy_v2(struct CUstream_st *stream) { IN_CONTEXT("cuStreamDestroy"); free(stream); live--; return 0; }
int cuStreamSynchronize(struct CUstream_st *stream) { IN_CONTEXT("cuStreamSynchronize"); return stream && stream->capturing ? CAPTURING : 0; }
int cuStreamBeginCapture_v2(struct CUstream_st *stream, int mode) {
    IN_CONTEXT("cuStreamBeginCapture");
    if (!stream || stream->capturing || mode != 1) return INVALID_VALUE;
    stream->capturing = true;
    return 0;
}
int cuStreamEndCapture(struct CUstream_st *stream, struct graph **graph) {
    IN_CONTEXT("cuStreamEndCapture");
    if (!stream->capturing) return INVALID_VALUE;
    MAKE(struct graph, graph);
    **graph = stream->graph;
    stream->graph = (struct graph){NULL, NULL};
    stream->capturing = false;
    return 0;
}
int cuGraphInstantiateWithFlags(struct graph **made, const struct graph *graph, unsigned long long flags) {
    IN_CONTEXT("cuGraphInstantiate");
    if (flags) return INVALID_VALUE;
    MAKE(struct graph, made);
    for (const struct record *one = graph->first; one; one = one->next) append(*made, one);
    return 0;
}
int cuGraphDestroy(struct graph *graph) {
    for (struct record *one = graph->first, *next; one; one = next) {
        next = one->next;
        free(one);
    }
    free(graph);
    live--;
    return 0;
}
int cuGraphExecDestroy(struct graph *graph) { IN_CONTEXT("cuGraphExecDestroy"); return cuGraphDestroy(graph); }
int cuGraphLaunch(const struct graph *graph, struct CUstream_st *stream) {
    IN_CONTEXT("cuGraphLaunch");
    if (stream && stream->capturing) return CAPTURING;
    int code = 0;
    for (const struct record *one = graph->first; one && !code; one = one->next) code = execute(one);
    return code;
}

int cuEventCreate(struct event **event, unsigned flags) { IN_CONTEXT("cuEventCreate"); (void)flags; MAKE(struct event, event); return 0; }
int cuEventDestroy_v2(struct event *event) { IN_CONTEXT("cuEventDestroy"); free(event); live--; return 0; }
int cuEventRecord(struct event *event, struct CUstream_st *stream) { IN_CONTEXT("cuEventRecord"); (void)stream; event->launches = launches; return 0; }
int cuEventElapsedTime(float *milliseconds, const struct event *start, const struct event *end) { *milliseconds = 0.5f * (float)(end->launches - start->launches); return 0; }
int cuEventElapsedTime_v2(float *milliseconds, const struct event *start, const struct event *end) { return cuEventElapsedTime(milliseconds, start, end); }

int cuGetProcAddress_v2(const char *name, void **found, int version, uint64_t flags, int *status) {
    char versioned[200];
    (void)version, (void)flags, (void)status;
    void *self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    snprintf(versioned, sizeof versioned, "%s_v2", name);
    *found = self ? dlsym(self, versioned) : NULL;
    if (self && !*found) *found = dlsym(self, name);
    if (self) dlclose(self);
    return *found ? 0 : NOT_FOUND;
}
