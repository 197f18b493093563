/* See runner.h. In this order: the driver's functions; loading; running. The list is read by launch_list.c. */
#define _XOPEN_SOURCE 700
#include "runner.h"

#include "launch_list.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_LIST_BYTES = 256 << 20, MAX_CODE_BYTES = 256 << 20, ALIGNMENT = 16 };

/* ---------------------------------------------------------------------------------------- functions of libcuda.so.1 */

/* Field of `struct cuda`, name in the library, types of the arguments; all give a CUresult. */
#define FUNCTIONS(X)                                                                                                   \
    X(init, "cuInit", (unsigned))                                                                                      \
    X(error_text, "cuGetErrorString", (int, const char **))                                                            \
    X(device_get, "cuDeviceGet", (int *, int))                                                                         \
    X(device_attribute, "cuDeviceGetAttribute", (int *, int, int))                                                     \
    X(retain, "cuDevicePrimaryCtxRetain", (void **, int))                                                              \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int))                                                                  \
    X(current, "cuCtxGetCurrent", (void **))                                                                           \
    X(current_device, "cuCtxGetDevice", (int *))                                                                       \
    X(push, "cuCtxPushCurrent_v2", (void *))                                                                           \
    X(pop, "cuCtxPopCurrent_v2", (void **))                                                                            \
    X(synchronize, "cuCtxSynchronize", (void))                                                                         \
    X(allocate, "cuMemAlloc_v2", (uint64_t *, size_t))                                                                 \
    X(release_memory, "cuMemFree_v2", (uint64_t))                                                                      \
    X(copy_in, "cuMemcpyHtoD_v2", (uint64_t, const void *, size_t))                                                    \
    X(copy_out, "cuMemcpyDtoH_v2", (void *, uint64_t, size_t))                                                         \
    X(load, "cuModuleLoadData", (void **, const void *))                                                               \
    X(unload, "cuModuleUnload", (void *))                                                                              \
    X(function, "cuModuleGetFunction", (void **, void *, const char *))                                                \
    X(set_attribute, "cuFuncSetAttribute", (void *, int, int))                                                         \
    X(launch, "cuLaunchKernel",                                                                                        \
      (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))

struct cuda {
    void *library;
#define FIELD(field, name, arguments) int(*field) arguments;
    FUNCTIONS(FIELD)
#undef FIELD
};

enum { CUDA_INVALID_VALUE = 1, ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76, ATTRIBUTE_DYNAMIC_SHARED = 8 };
enum { PARAMETERS_END = 0, PARAMETERS_POINTER = 1, PARAMETERS_SIZE = 2 };

struct dsa_network {
    struct cuda cuda;
    char *file; /* the bytes of launches.bin, into which `list` points */
    struct launch_list list;
    char *folder; /* without links */
    void *context;
    bool retained;
    int device;
    uint64_t arena;
    void **modules, **kernels; /* by their numbers in the list; NULL until they are loaded */
    dsa_tensor *outside;       /* inputs, then outputs */
    uint32_t *pointers;        /* by tensor: its number among the pointers of dsa_run, counted from 1; 0: none */
};

/* ---------------------------------------------------------------------------------------------------------- loading */

/* Opens a file of the folder; links that lead out of it are refused. */
static FILE *open_file(dsa_network *n, struct message message, const char *name, uint64_t most, uint64_t *size) {
    const char *folder = n->folder;
    size_t length = strlen(folder);
    char *path = malloc(length + strlen(name) + 2);
    if (!path) return dsa_fail(message, "out of memory"), NULL;
    sprintf(path, "%s/%s", folder, name);
    char *real = realpath(path, NULL);
    FILE *file = NULL;
    struct stat about;
    if (!real || stat(real, &about)) dsa_fail(message, "%s: %s", path, strerror(errno));
    else if (strncmp(real, folder, length) || real[length] != '/') dsa_fail(message, "%s: leads out of the folder", path);
    else if (!S_ISREG(about.st_mode)) dsa_fail(message, "%s: is not a file", path);
    else if ((uint64_t)about.st_size > most)
        dsa_fail(message, "%s: needs at most %llu bytes", path, (unsigned long long)most);
    else if (!(file = fopen(real, "rb"))) dsa_fail(message, "%s: %s", path, strerror(errno));
    else *size = (uint64_t)about.st_size;
    free(real);
    free(path);
    return file;
}

/* The bytes of a file, and a zero after them; the caller frees them. NULL after a message. */
static char *read_file(dsa_network *n, struct message message, const char *name, uint64_t most, uint64_t *size) {
    FILE *file = open_file(n, message, name, most, size);
    char *data = file ? malloc((size_t)*size + 1) : NULL;
    bool whole = data && fread(data, 1, (size_t)*size, file) == *size;
    if (file && !whole) dsa_fail(message, "%s: cannot be read", name);
    if (file) fclose(file);
    if (!whole) return free(data), NULL;
    data[*size] = 0;
    return data;
}

static bool read_list(dsa_network *n, struct message message) {
    uint64_t size;
    n->file = read_file(n, message, "launches.bin", MAX_LIST_BYTES, &size);
    if (!n->file || !dsa_read_list(n->file, (size_t)size, &n->list, message)) return false;
    const struct list_header *header = n->list.header;
    n->modules = calloc(header->modules + (size_t)1, sizeof *n->modules);
    n->kernels = calloc(header->kernels + (size_t)1, sizeof *n->kernels);
    n->outside = calloc(header->inputs + header->outputs + (size_t)1, sizeof *n->outside);
    n->pointers = calloc(header->tensors + (size_t)1, sizeof *n->pointers);
    return (n->modules && n->kernels && n->outside && n->pointers) || dsa_fail(message, "out of memory");
}

/* `code` as a message: who failed, and CUDA's words. */
static bool cuda_failed(dsa_network *n, struct message message, const char *who, int code) {
    return dsa_fail(message, "%s: %s", who, dsa_error_text(n, code));
}

static bool open_cuda(dsa_network *n, struct message message) {
    struct cuda *cuda = &n->cuda;
    cuda->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda->library) return dsa_fail(message, "needs an NVIDIA driver: %s", dlerror());
#define FIND(field, name, arguments)                                                                                   \
    *(void **)(void *)&cuda->field = dlsym(cuda->library, name);                                                       \
    if (!cuda->field) return dsa_fail(message, "the NVIDIA driver lacks " name);
    FUNCTIONS(FIND)
#undef FIND
    return true;
}

/* Makes a context current, to be popped at the end; sets `device`. */
static bool enter_context(dsa_network *n, struct message message) {
    int code = n->cuda.init(0);
    if (!code) code = n->cuda.current(&n->context);
    if (code) return cuda_failed(n, message, "the NVIDIA driver", code);
    if (n->context) code = n->cuda.current_device(&n->device);
    else if (!(code = n->cuda.device_get(&n->device, 0))) {
        code = n->cuda.retain(&n->context, n->device);
        n->retained = !code;
    }
    if (!code) code = n->cuda.push(n->context);
    return !code || cuda_failed(n, message, "device", code);
}

/* `sm_80` runs on 8.0 and 8.6, `sm_90a` on 9.0 only. */
static bool check_architecture(dsa_network *n, struct message message) {
    const char *name = n->list.header->architecture;
    int major = 0, minor = 0, made = 0;
    char suffix[2] = "", rest = 0;
    int found = sscanf(name, "sm_%3d%1[a]%c", &made, suffix, &rest);
    if (found < 1 || made < 10 || strlen(name) != (size_t)(made > 99 ? 6 : 5) + strlen(suffix))
        return dsa_fail(message, "launches.bin: architecture %s is not known", name);
    int code = n->cuda.device_attribute(&major, ATTRIBUTE_MAJOR, n->device);
    if (!code) code = n->cuda.device_attribute(&minor, ATTRIBUTE_MINOR, n->device);
    if (code) return cuda_failed(n, message, "device", code);
    if (made / 10 != major || (*suffix ? made % 10 != minor : made % 10 > minor))
        return dsa_fail(message, "launches.bin: machine code for %s, the device is sm_%d%d", name, major, minor);
    return true;
}

static bool load_data(dsa_network *n, struct message message, const struct list_data *data) {
    const char *name = n->list.names + data->file;
    enum { CHUNK = 8 << 20 };
    uint64_t size, done = 0;
    FILE *file = open_file(n, message, name, DSA_MAX_BYTES, &size);
    if (!file) return false;
    char *chunk = malloc(CHUNK);
    bool good = size == data->bytes || dsa_fail(message, "%s: needs %llu bytes, has %llu", name,
                                           (unsigned long long)data->bytes, (unsigned long long)size);
    if (!chunk) good = dsa_fail(message, "out of memory");
    for (size_t part; good && done < size; done += part) {
        part = size - done < CHUNK ? (size_t)(size - done) : CHUNK;
        if (fread(chunk, 1, part, file) != part) good = dsa_fail(message, "%s: cannot be read", name);
        int code = good ? n->cuda.copy_in(n->arena + data->offset + done, chunk, part) : 0;
        if (code) good = cuda_failed(n, message, name, code);
    }
    free(chunk);
    fclose(file);
    return good;
}

/* Whether all parts of a cubin, which is ELF, lie inside the file: the driver is not given its length. */
static bool is_whole(const char *image, uint64_t size) {
    uint64_t programs, sections, place[2];
    uint16_t counts[4];
    uint32_t kind;
    if (size < 64 || memcmp(image, "\177ELF\2", 5)) return false;
    memcpy(&programs, image + 32, 8);
    memcpy(&sections, image + 40, 8);
    memcpy(counts, image + 54, 8);
    if (programs > size || (uint64_t)counts[0] * counts[1] > size - programs) return false;
    if (sections > size || (uint64_t)counts[2] * counts[3] > size - sections) return false;
    for (uint64_t k = 0; counts[2] >= 64 && k < counts[3]; k++) {
        memcpy(&kind, image + sections + k * counts[2] + 4, 4);
        memcpy(place, image + sections + k * counts[2] + 24, 16);
        if (kind != 8 && (place[0] > size || place[1] > size - place[0])) return false; /* 8: nothing in the file */
    }
    return true;
}

static bool load_kernel(dsa_network *n, struct message message, uint32_t number) {
    const struct list_kernel *kernel = n->list.kernels + number;
    const char *name = n->list.names + kernel->name, *layer = n->list.names + kernel->layer;
    void **module = n->modules + kernel->module;
    if (!*module) {
        const char *cubin = n->list.names + n->list.modules[kernel->module].cubin;
        uint64_t size;
        char *image = read_file(n, message, cubin, MAX_CODE_BYTES, &size);
        if (!image) return false;
        bool whole = is_whole(image, size);
        int code = whole ? n->cuda.load(module, image) : 0;
        free(image);
        if (!whole) return dsa_fail(message, "%s: is not machine code of a GPU, or is cut off", cubin);
        if (code) return *module = NULL, cuda_failed(n, message, cubin, code);
    }
    int code = n->cuda.function(n->kernels + number, *module, name);
    if (code) return dsa_fail(message, "layer %s: kernel %s: %s", layer, name, dsa_error_text(n, code));
    /* Needed where static and dynamic shared memory together exceed 48 KiB, and harmless elsewhere. */
    int most = (int)kernel->shared_bytes;
    code = most ? n->cuda.set_attribute(n->kernels[number], ATTRIBUTE_DYNAMIC_SHARED, most) : 0;
    return !code || dsa_fail(message, "layer %s: kernel %s: %d bytes of shared memory: %s", layer, name, most,
                             dsa_error_text(n, code));
}

/* The caller's view of an input or output. */
static dsa_tensor described(const struct launch_list *list, const struct list_outside *one) {
    const struct dtype *dtype = DSA_DTYPES + one->dtype;
    uint64_t bytes = dtype->bytes;
    for (uint32_t k = 0; k < one->rank; k++) bytes *= one->shape[k];
    return (dsa_tensor){list->names + one->name, dtype->name, one->rank, one->shape, one->has_axes, one->axes,
                        (size_t)bytes, 0};
}

static bool share_memory(const struct list_tensor *a, const struct list_tensor *b) {
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Describes inputs and outputs. Fixed are those that share memory with another tensor of a kernel, and outputs that no
 * kernel names: with a pointer of the caller's in place of that memory, the kernels would not see it. */
static bool describe_outside(dsa_network *n, struct message message) {
    const struct launch_list *list = &n->list;
    const struct list_header *header = list->header;
    bool *named = calloc(header->tensors + (size_t)1, 1);
    if (!named) return dsa_fail(message, "out of memory");
    for (uint32_t k = 0; k < header->relocations; k++) named[list->relocations[k].tensor] = true;
    for (uint32_t k = 0; k < header->inputs + header->outputs; k++) {
        uint32_t own = list->outside[k].tensor;
        n->outside[k] = described(list, list->outside + k);
        n->pointers[own] = k + 1;
        n->outside[k].fixed = k >= header->inputs && !named[own];
        for (uint32_t m = 0; m < header->tensors; m++)
            if (m != own && named[m] && share_memory(list->tensors + m, list->tensors + own)) n->outside[k].fixed = 1;
    }
    free(named);
    return true;
}

static bool load(dsa_network *n, struct message message) {
    const struct list_header *header = n->list.header;
    int code = n->cuda.allocate(&n->arena, (size_t)(header->arena_bytes ? header->arena_bytes : 1));
    if (code) return n->arena = 0, cuda_failed(n, message, "memory for values and constants", code);
    for (uint32_t k = 0; k < header->data; k++)
        if (!load_data(n, message, n->list.data + k)) return false;
    for (uint32_t k = 0; k < header->kernels; k++)
        if (!load_kernel(n, message, k)) return false;
    code = n->cuda.synchronize(); /* copies end before the first run, on whatever stream */
    if (code) return cuda_failed(n, message, "device", code);
    return describe_outside(n, message);
}

dsa_network *dsa_create(const char *folder, char *error, size_t error_bytes) {
    struct message message = {error, error_bytes};
    dsa_network *n = calloc(1, sizeof *n);
    if (!n) return dsa_fail(message, "out of memory"), NULL;
    n->folder = realpath(folder, NULL);
    bool good = n->folder ? true : dsa_fail(message, "%s: %s", folder, strerror(errno));
    good = good && read_list(n, message) && open_cuda(n, message) && enter_context(n, message);
    if (good) {
        void *old;
        good = check_architecture(n, message) && load(n, message);
        n->cuda.pop(&old);
    }
    if (!good) dsa_destroy(n);
    return good ? n : NULL;
}

/* ---------------------------------------------------------------------------------------------------------- running */

const dsa_tensor *dsa_inputs(const dsa_network *network, size_t *count) {
    return *count = network->list.header->inputs, network->outside;
}

const dsa_tensor *dsa_outputs(const dsa_network *network, size_t *count) {
    return *count = network->list.header->outputs, network->outside + network->list.header->inputs;
}

static int start(const dsa_network *n, const struct list_launch *launch, CUstream stream, void *const *pointers) {
    uint8_t parameters[DSA_MAX_PARAMETERS];
    size_t size = launch->parameter_bytes;
    memcpy(parameters, n->list.parameters + launch->parameters, size);
    for (uint32_t k = 0; k < launch->relocations; k++) {
        const struct list_relocation *one = n->list.relocations + launch->first_relocation + k;
        uint32_t pointer = n->pointers[one->tensor];
        const void *given = pointer && pointers ? pointers[pointer - 1] : NULL;
        uint64_t own = n->arena + n->list.tensors[one->tensor].offset;
        uint64_t address = (given ? (uint64_t)(uintptr_t)given : own) + one->plus;
        memcpy(parameters + one->at, &address, 8);
    }
    void *extra[] = {(void *)PARAMETERS_POINTER, parameters, (void *)PARAMETERS_SIZE, &size, (void *)PARAMETERS_END};
    const uint32_t *grid = launch->grid, *block = launch->block;
    return n->cuda.launch(n->kernels[launch->kernel], grid[0], grid[1], grid[2], block[0], block[1], block[2],
                          launch->shared_bytes, stream, NULL, extra);
}

int dsa_run(const dsa_network *n, CUstream stream, void *const *pointers) {
    for (size_t k = 0; pointers && k < (size_t)n->list.header->inputs + n->list.header->outputs; k++)
        if (pointers[k] && ((uintptr_t)pointers[k] % ALIGNMENT || n->outside[k].fixed)) return CUDA_INVALID_VALUE;
    void *old;
    int code = n->cuda.push(n->context);
    if (code) return code;
    for (uint32_t k = 0; k < n->list.header->launches && !code; k++)
        code = start(n, n->list.launches + k, stream, pointers);
    n->cuda.pop(&old);
    return code;
}

/* Waits for the device, then copies one way. */
static int copy(const dsa_network *n, size_t number, void *to, const void *from) {
    void *old;
    int code = n->cuda.push(n->context);
    if (code) return code;
    uint64_t address = n->arena + n->list.tensors[n->list.outside[number].tensor].offset;
    code = n->cuda.synchronize();
    if (!code && from) code = n->cuda.copy_in(address, from, n->outside[number].bytes);
    if (!code && to) code = n->cuda.copy_out(to, address, n->outside[number].bytes);
    if (!code) code = n->cuda.synchronize();
    n->cuda.pop(&old);
    return code;
}

int dsa_set_input(const dsa_network *network, size_t number, const void *from) {
    return number < network->list.header->inputs ? copy(network, number, NULL, from) : CUDA_INVALID_VALUE;
}

int dsa_get_output(const dsa_network *network, size_t number, void *to) {
    const struct list_header *header = network->list.header;
    return number < header->outputs ? copy(network, header->inputs + number, to, NULL) : CUDA_INVALID_VALUE;
}

const char *dsa_error_text(const dsa_network *network, int code) {
    const char *text = NULL;
    return network->cuda.error_text(code, &text) || !text ? "an error that CUDA does not describe" : text;
}

void dsa_destroy(dsa_network *n) {
    if (!n) return;
    void *old;
    if (n->context && !n->cuda.push(n->context)) {
        n->cuda.synchronize();
        for (uint32_t k = 0; n->modules && k < n->list.header->modules; k++)
            if (n->modules[k]) n->cuda.unload(n->modules[k]);
        if (n->arena) n->cuda.release_memory(n->arena);
        n->cuda.pop(&old);
    }
    if (n->retained) n->cuda.release(n->device);
    if (n->cuda.library) dlclose(n->cuda.library);
    free(n->modules);
    free(n->kernels);
    free(n->outside);
    free(n->pointers);
    free(n->file);
    free(n->folder);
    free(n);
}
