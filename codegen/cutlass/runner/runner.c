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
    struct launches list;
    char *folder; /* without links */
    void *context;
    bool retained;
    int device;
    uint64_t arena;
    dsa_tensor *outside; /* inputs, then outputs */
    uint64_t *homes;     /* their addresses in the arena */
};

/* ---------------------------------------------------------------------------------------------------------- loading */

/* Opens a file of the folder; links that lead out of it are refused. */
static FILE *open_file(dsa_network *n, struct told told, const char *name, uint64_t most, uint64_t *size) {
    const char *folder = n->folder;
    size_t length = strlen(folder);
    char *path = malloc(length + strlen(name) + 2);
    if (!path) return dsa_say(told, "out of memory"), NULL;
    sprintf(path, "%s/%s", folder, name);
    char *real = realpath(path, NULL);
    FILE *file = NULL;
    struct stat about;
    if (!real || stat(real, &about)) dsa_say(told, "%s: %s", path, strerror(errno));
    else if (strncmp(real, folder, length) || real[length] != '/') dsa_say(told, "%s: leads out of the folder", path);
    else if (!S_ISREG(about.st_mode)) dsa_say(told, "%s: is no file", path);
    else if ((uint64_t)about.st_size > most)
        dsa_say(told, "%s: needs at most %llu bytes", path, (unsigned long long)most);
    else if (!(file = fopen(real, "rb"))) dsa_say(told, "%s: %s", path, strerror(errno));
    else *size = (uint64_t)about.st_size;
    free(real);
    free(path);
    return file;
}

/* The bytes of a file, and a zero behind them; the caller frees them. NULL after a message. */
static char *read_file(dsa_network *n, struct told told, const char *name, uint64_t most, uint64_t *size) {
    FILE *file = open_file(n, told, name, most, size);
    char *data = file ? malloc((size_t)*size + 1) : NULL;
    bool whole = data && fread(data, 1, (size_t)*size, file) == *size;
    if (file && !whole) dsa_say(told, "%s: cannot be read", name);
    if (file) fclose(file);
    if (!whole) return free(data), NULL;
    data[*size] = 0;
    return data;
}

static bool read_list(dsa_network *n, struct told told) {
    uint64_t size;
    char *text = read_file(n, told, "launches.json", MAX_LIST_BYTES, &size);
    bool good = text && dsa_read_list(text, (size_t)size, &n->list, told);
    free(text);
    return good;
}

/* `code` as a message: who failed, and CUDA's words. */
static bool cuda_failed(dsa_network *n, struct told told, const char *who, int code) {
    return dsa_say(told, "%s: %s", who, dsa_error_text(n, code));
}

static bool open_cuda(dsa_network *n, struct told told) {
    struct cuda *cuda = &n->cuda;
    cuda->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!cuda->library) return dsa_say(told, "needs an NVIDIA driver: %s", dlerror());
#define FIND(field, name, arguments)                                                                                   \
    *(void **)(void *)&cuda->field = dlsym(cuda->library, name);                                                       \
    if (!cuda->field) return dsa_say(told, "the NVIDIA driver lacks " name);
    FUNCTIONS(FIND)
#undef FIND
    return true;
}

/* Makes a context current, to be popped at the end; sets `device`. */
static bool enter_context(dsa_network *n, struct told told) {
    int code = n->cuda.init(0);
    if (!code) code = n->cuda.current(&n->context);
    if (code) return cuda_failed(n, told, "the NVIDIA driver", code);
    if (n->context) code = n->cuda.current_device(&n->device);
    else if (!(code = n->cuda.device_get(&n->device, 0))) {
        code = n->cuda.retain(&n->context, n->device);
        n->retained = !code;
    }
    if (!code) code = n->cuda.push(n->context);
    return !code || cuda_failed(n, told, "device", code);
}

/* `sm_80` runs on 8.0 and 8.6, `sm_90a` on 9.0 only. */
static bool check_architecture(dsa_network *n, struct told told) {
    const char *name = n->list.architecture;
    int major = 0, minor = 0, made = 0;
    char suffix[2] = "", rest = 0;
    int found = sscanf(name, "sm_%3d%1[a]%c", &made, suffix, &rest);
    if (found < 1 || made < 10 || strlen(name) != (size_t)(made > 99 ? 6 : 5) + strlen(suffix))
        return dsa_say(told, "launches.json: architecture %s is not known", name);
    int code = n->cuda.device_attribute(&major, ATTRIBUTE_MAJOR, n->device);
    if (!code) code = n->cuda.device_attribute(&minor, ATTRIBUTE_MINOR, n->device);
    if (code) return cuda_failed(n, told, "device", code);
    if (made / 10 != major || (*suffix ? made % 10 != minor : made % 10 > minor))
        return dsa_say(told, "launches.json: machine code for %s, the device is sm_%d%d", name, major, minor);
    return true;
}

static bool load_data(dsa_network *n, struct told told, const struct data *data) {
    enum { CHUNK = 8 << 20 };
    uint64_t size, done = 0;
    FILE *file = open_file(n, told, data->file, DSA_MAX_BYTES, &size);
    if (!file) return false;
    char *chunk = malloc(CHUNK);
    bool good = size == data->bytes || dsa_say(told, "%s: needs %llu bytes, has %llu", data->file,
                                           (unsigned long long)data->bytes, (unsigned long long)size);
    if (!chunk) good = dsa_say(told, "out of memory");
    for (size_t part; good && done < size; done += part) {
        part = size - done < CHUNK ? (size_t)(size - done) : CHUNK;
        if (fread(chunk, 1, part, file) != part) good = dsa_say(told, "%s: cannot be read", data->file);
        int code = good ? n->cuda.copy_in(n->arena + data->offset + done, chunk, part) : 0;
        if (code) good = cuda_failed(n, told, data->file, code);
    }
    free(chunk);
    fclose(file);
    return good;
}

/* That all parts of a cubin, which is ELF, lie inside the file: the driver is told no length. */
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

static bool load_launch(dsa_network *n, struct told told, struct launch *launch) {
    struct module *module = (struct module *)n->list.modules.at + launch->module;
    if (!module->loaded) {
        uint64_t size;
        char *image = read_file(n, told, module->cubin, MAX_CODE_BYTES, &size);
        if (!image) return false;
        bool whole = is_whole(image, size);
        int code = whole ? n->cuda.load(&module->loaded, image) : 0;
        free(image);
        if (!whole) return dsa_say(told, "%s: is no machine code of a GPU, or cut off", module->cubin);
        if (code) return module->loaded = NULL, cuda_failed(n, told, module->cubin, code);
    }
    struct function *known = module->functions;
    while (known && strcmp(known->name, launch->kernel)) known = known->next;
    if (!known) {
        known = calloc(1, sizeof *known);
        if (!known) return dsa_say(told, "out of memory");
        *known = (struct function){module->functions, launch->kernel, launch->layer, NULL, 0};
        module->functions = known;
        int code = n->cuda.function(&known->handle, module->loaded, launch->kernel);
        if (code)
            return dsa_say(told, "layer %s: kernel %s: %s", launch->layer, launch->kernel, dsa_error_text(n, code));
    }
    if (launch->shared_bytes > known->most_shared_bytes) known->most_shared_bytes = launch->shared_bytes;
    launch->function = known;
    return true;
}

/* Asks for dynamic shared memory: needed where it and static one exceed 48 KiB together, and harmless elsewhere. */
static bool ask_for_shared_memory(dsa_network *n, struct told told, const struct function *function) {
    int most = (int)function->most_shared_bytes;
    int code = most ? n->cuda.set_attribute(function->handle, ATTRIBUTE_DYNAMIC_SHARED, most) : 0;
    return !code || dsa_say(told, "layer %s: kernel %s: %d bytes of shared memory: %s", function->layer, function->name,
                            most, dsa_error_text(n, code));
}

/* Inputs and outputs that share memory with another tensor of a kernel, or outputs that no kernel names: with a pointer
 * of the caller's in place of that memory, the kernels would not see it. */
static bool find_fixed(dsa_network *n, struct told told) {
    const struct launches *list = &n->list;
    bool *named = calloc(list->tensors.count + 1, 1);
    if (!named) return dsa_say(told, "out of memory");
    for (size_t k = 0; k < list->launches.count; k++) {
        const struct launch *launch = (const struct launch *)list->launches.at + k;
        const struct relocation *moved = launch->relocations.at;
        for (size_t m = 0; m < launch->relocations.count; m++) named[moved[m].tensor] = true;
    }
    const struct tensor *tensors = list->tensors.at;
    for (size_t k = 0; k < list->tensors.count; k++) {
        if (!tensors[k].pointer) continue;
        dsa_tensor *outside = &n->outside[tensors[k].pointer - 1];
        outside->fixed = !named[k] && tensors[k].pointer > list->inputs;
        for (size_t m = 0; m < list->tensors.count; m++)
            if (m != k && named[m] && tensors[m].offset < tensors[k].offset + tensors[k].bytes &&
                tensors[k].offset < tensors[m].offset + tensors[m].bytes)
                outside->fixed = 1;
    }
    free(named);
    return true;
}

/* Tables of inputs and outputs, in the order of the list. */
static bool list_outside(dsa_network *n, struct told told) {
    size_t count = n->list.inputs + n->list.outputs, next[2] = {0, n->list.inputs};
    n->outside = calloc(count + 1, sizeof *n->outside);
    n->homes = calloc(count + 1, sizeof *n->homes);
    if (!n->outside || !n->homes) return dsa_say(told, "out of memory");
    for (size_t k = 0; k < n->list.tensors.count; k++) {
        struct tensor *tensor = (struct tensor *)n->list.tensors.at + k;
        bool output = !strcmp(tensor->role, "output");
        if (!output && strcmp(tensor->role, "input")) continue;
        size_t number = next[output]++;
        n->outside[number] = (dsa_tensor){
            tensor->name, tensor->dtype, tensor->shape.count, tensor->shape.at, tensor->layout.count != 0,
            tensor->layout.at, (size_t)tensor->used_bytes, 0,
        };
        n->homes[number] = n->arena + tensor->offset;
        tensor->pointer = number + 1;
    }
    return true;
}

static bool load(dsa_network *n, struct told told) {
    int code = n->cuda.allocate(&n->arena, (size_t)(n->list.arena_bytes ? n->list.arena_bytes : 1));
    if (code) return n->arena = 0, cuda_failed(n, told, "memory for values and constants", code);
    for (size_t k = 0; k < n->list.data.count; k++)
        if (!load_data(n, told, (const struct data *)n->list.data.at + k)) return false;
    for (size_t k = 0; k < n->list.launches.count; k++)
        if (!load_launch(n, told, (struct launch *)n->list.launches.at + k)) return false;
    for (size_t k = 0; k < n->list.modules.count; k++) {
        const struct function *one = ((const struct module *)n->list.modules.at)[k].functions;
        for (; one; one = one->next)
            if (!ask_for_shared_memory(n, told, one)) return false;
    }
    code = n->cuda.synchronize(); /* copies end before the first run, on whatever stream */
    if (code) return cuda_failed(n, told, "device", code);
    return list_outside(n, told) && find_fixed(n, told);
}

dsa_network *dsa_create(const char *folder, char *error, size_t error_bytes) {
    struct told told = {error, error_bytes};
    dsa_network *n = calloc(1, sizeof *n);
    if (!n) return dsa_say(told, "out of memory"), NULL;
    n->folder = realpath(folder, NULL);
    bool good = n->folder ? true : dsa_say(told, "%s: %s", folder, strerror(errno));
    good = good && read_list(n, told) && open_cuda(n, told) && enter_context(n, told);
    if (good) {
        void *old;
        good = check_architecture(n, told) && load(n, told);
        n->cuda.pop(&old);
    }
    if (!good) dsa_destroy(n);
    return good ? n : NULL;
}

/* ---------------------------------------------------------------------------------------------------------- running */

const dsa_tensor *dsa_inputs(const dsa_network *network, size_t *count) {
    return *count = network->list.inputs, network->outside;
}

const dsa_tensor *dsa_outputs(const dsa_network *network, size_t *count) {
    return *count = network->list.outputs, network->outside + network->list.inputs;
}

static int start(const dsa_network *n, const struct launch *launch, CUstream stream, void *const *pointers) {
    uint8_t parameters[DSA_MAX_PARAMETERS];
    size_t size = launch->parameters.count;
    memcpy(parameters, launch->parameters.at, size);
    for (size_t k = 0; k < launch->relocations.count; k++) {
        const struct relocation *moved = (const struct relocation *)launch->relocations.at + k;
        const struct tensor *tensor = (const struct tensor *)n->list.tensors.at + moved->tensor;
        const void *given = tensor->pointer && pointers ? pointers[tensor->pointer - 1] : NULL;
        uint64_t address = (given ? (uint64_t)(uintptr_t)given : n->arena + tensor->offset) + moved->plus;
        memcpy(parameters + moved->at, &address, 8);
    }
    void *extra[] = {(void *)PARAMETERS_POINTER, parameters, (void *)PARAMETERS_SIZE, &size, (void *)PARAMETERS_END};
    const uint64_t *grid = launch->grid.at, *block = launch->block.at;
    return n->cuda.launch(launch->function->handle, (unsigned)grid[0], (unsigned)grid[1], (unsigned)grid[2],
                          (unsigned)block[0], (unsigned)block[1], (unsigned)block[2], (unsigned)launch->shared_bytes,
                          stream, NULL, extra);
}

int dsa_run(const dsa_network *n, CUstream stream, void *const *pointers) {
    for (size_t k = 0; pointers && k < n->list.inputs + n->list.outputs; k++)
        if (pointers[k] && ((uintptr_t)pointers[k] % ALIGNMENT || n->outside[k].fixed)) return CUDA_INVALID_VALUE;
    void *old;
    int code = n->cuda.push(n->context);
    if (code) return code;
    for (size_t k = 0; k < n->list.launches.count && !code; k++)
        code = start(n, (const struct launch *)n->list.launches.at + k, stream, pointers);
    n->cuda.pop(&old);
    return code;
}

/* Waits for the device, then copies one way. */
static int copy(const dsa_network *n, size_t number, void *to, const void *from) {
    void *old;
    int code = n->cuda.push(n->context);
    if (code) return code;
    code = n->cuda.synchronize();
    if (!code && from) code = n->cuda.copy_in(n->homes[number], from, n->outside[number].bytes);
    if (!code && to) code = n->cuda.copy_out(to, n->homes[number], n->outside[number].bytes);
    if (!code) code = n->cuda.synchronize();
    n->cuda.pop(&old);
    return code;
}

int dsa_set_input(const dsa_network *network, size_t number, const void *from) {
    return number < network->list.inputs ? copy(network, number, NULL, from) : CUDA_INVALID_VALUE;
}

int dsa_get_output(const dsa_network *network, size_t number, void *to) {
    return number < network->list.outputs ? copy(network, network->list.inputs + number, to, NULL) : CUDA_INVALID_VALUE;
}

const char *dsa_error_text(const dsa_network *network, int code) {
    const char *text = NULL;
    return network->cuda.error_text(code, &text) || !text ? "an error that CUDA has no words for" : text;
}

void dsa_destroy(dsa_network *n) {
    if (!n) return;
    void *old;
    if (n->context && !n->cuda.push(n->context)) {
        n->cuda.synchronize();
        for (size_t k = 0; k < n->list.modules.count; k++) {
            void *loaded = ((struct module *)n->list.modules.at)[k].loaded;
            if (loaded) n->cuda.unload(loaded);
        }
        if (n->arena) n->cuda.release_memory(n->arena);
        n->cuda.pop(&old);
    }
    for (size_t k = 0; k < n->list.modules.count; k++)
        for (struct function *one = ((struct module *)n->list.modules.at)[k].functions, *next; one; one = next) {
            next = one->next;
            free(one);
        }
    if (n->retained) n->cuda.release(n->device);
    if (n->cuda.library) dlclose(n->cuda.library);
    dsa_free_list(&n->list);
    free(n->outside);
    free(n->homes);
    free(n->folder);
    free(n);
}
