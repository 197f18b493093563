/* Checks launches.bin, which may come from a stranger: after that every number and every offset in it is good. */
#include "launch_list.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

_Static_assert(sizeof(struct list_header) == 80 && sizeof(struct list_outside) == 280 &&
                   sizeof(struct list_launch) == 56, "records have no gaps that the compiler adds");

enum { MAX_NAME = 4 * 1024, MAX_KERNEL_NAME = 256, MAX_FILE_NAME = 200, MAX_SHARED = 1 << 20 };

const struct dtype DSA_DTYPES[8] = {
    {"float16", 2}, {"float32", 4}, {"float64", 8}, {"int8", 1}, {"uint8", 1}, {"int32", 4}, {"int64", 8}, {"bool", 1},
};

bool dsa_fail(struct message message, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (message.bytes) vsnprintf(message.text, message.bytes, format, arguments);
    va_end(arguments);
    return false;
}

/* ------------------------------------------------------------------------------------------------------------ names */

/* Whether the section consists of names of 1 to MAX_NAME bytes without control characters, with a zero after each. */
static bool are_names(const char *names, size_t bytes) {
    size_t length = 0;
    for (size_t k = 0; k < bytes; k++) {
        if (names[k] ? ++length > MAX_NAME || (unsigned char)names[k] < 0x20 || names[k] == 0x7f : !length) return false;
        if (!names[k]) length = 0;
    }
    return !length;
}

/* The name that starts at an offset; NULL where none does. */
static const char *name_at(const struct launch_list *list, uint32_t offset) {
    if (offset >= list->header->name_bytes || (offset && list->names[offset - 1])) return NULL;
    return list->names + offset;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_kernel_name(const char *name) {
    for (const char *c = name; *c; c++)
        if (c - name == MAX_KERNEL_NAME || (!is_letter(*c) && *c != '$' && (c == name || *c < '0' || *c > '9')))
            return false;
    return true;
}

/* Whether it has only letters, digits and `_.-`, in one folder at most, and no part starts with a dot. */
static bool is_file_name(const char *name) {
    int slashes = 0;
    for (const char *c = name; *c; c++) {
        bool starts = c == name || c[-1] == '/';
        if (*c == '/' && !starts && c[1]) slashes++;
        else if (!is_letter(*c) && (*c < '0' || *c > '9') && *c != '-' && (*c != '.' || starts)) return false;
    }
    return slashes <= 1 && strlen(name) <= MAX_FILE_NAME;
}

static bool check_file(const struct launch_list *list, uint32_t offset, struct message message) {
    const char *name = name_at(list, offset);
    if (!name) return dsa_fail(message, "launches.bin: a file has no name");
    return is_file_name(name) || dsa_fail(message, "launches.bin: %s is not the name of a file in the folder", name);
}

/* ---------------------------------------------------------------------------------------------------------- records */

static bool is_in_arena(const struct launch_list *list, uint64_t offset, uint64_t bytes) {
    return offset <= list->header->arena_bytes && bytes <= list->header->arena_bytes - offset;
}

static bool check_outside(const struct launch_list *list, uint32_t number, struct message message) {
    const struct list_outside *outside = list->outside + number;
    const char *role = number < list->header->inputs ? "input" : "output";
    const char *name = name_at(list, outside->name);
    if (!name) return dsa_fail(message, "launches.bin: %s %u has no name", role, number);
    if (outside->tensor >= list->header->tensors)
        return dsa_fail(message, "launches.bin: %s %s: there is no tensor %u", role, name, outside->tensor);
    if (outside->dtype >= COUNT(DSA_DTYPES))
        return dsa_fail(message, "launches.bin: %s %s: there is no element type %u", role, name, outside->dtype);
    if (outside->rank > DSA_MAX_RANK)
        return dsa_fail(message, "launches.bin: %s %s: needs at most %d axes, has %u", role, name, DSA_MAX_RANK,
                        outside->rank);
    uint64_t room = list->tensors[outside->tensor].bytes / DSA_DTYPES[outside->dtype].bytes;
    for (uint32_t k = 0; k < outside->rank; k++) {
        if (!outside->shape[k]) return dsa_fail(message, "launches.bin: %s %s: axis %u has extent 0", role, name, k);
        room /= outside->shape[k];
    }
    return room || dsa_fail(message, "launches.bin: %s %s is larger than its range of the arena", role, name);
}

static bool check_kernel(const struct launch_list *list, uint32_t number, struct message message) {
    const struct list_kernel *kernel = list->kernels + number;
    const char *name = name_at(list, kernel->name);
    if (!name || !is_kernel_name(name)) return dsa_fail(message, "launches.bin: kernel %u has no proper name", number);
    if (!name_at(list, kernel->layer))
        return dsa_fail(message, "launches.bin: kernel %s has no layer", name);
    if (kernel->module >= list->header->modules)
        return dsa_fail(message, "launches.bin: kernel %s: there is no module %u", name, kernel->module);
    return kernel->shared_bytes <= MAX_SHARED ||
           dsa_fail(message, "launches.bin: kernel %s: needs at most %d bytes of shared memory, has %u", name,
                    MAX_SHARED, kernel->shared_bytes);
}

static bool are_extents(const uint32_t *extents, const uint32_t *most) {
    for (int k = 0; k < 3; k++)
        if (!extents[k] || extents[k] > most[k]) return false;
    return true;
}

static bool check_relocations(const struct launch_list *list, const struct list_launch *launch, const char *layer,
                              struct message message) {
    uint32_t all = list->header->relocations, first = launch->first_relocation;
    uint32_t before = launch == list->launches ? 0 : launch[-1].first_relocation + launch[-1].relocations;
    if (first != before || launch->relocations > all - first)
        return dsa_fail(message, "launches.bin: launch of %s: relocations that are not its own", layer);
    for (uint32_t k = 0; k < launch->relocations; k++) {
        const struct list_relocation *one = list->relocations + launch->first_relocation + k;
        if (one->tensor >= list->header->tensors)
            return dsa_fail(message, "launches.bin: launch of %s: there is no tensor %u", layer, one->tensor);
        if (one->plus > list->tensors[one->tensor].bytes)
            return dsa_fail(message, "launches.bin: launch of %s: an address beyond its tensor", layer);
        if (launch->parameter_bytes < 8 || one->at > launch->parameter_bytes - 8)
            return dsa_fail(message, "launches.bin: launch of %s: an address beyond the parameters", layer);
    }
    return true;
}

static bool check_launch(const struct launch_list *list, uint32_t number, struct message message) {
    static const uint32_t most_grid[] = {INT_MAX, 65535, 65535}, most_block[] = {1024, 1024, 64};
    const struct list_launch *launch = list->launches + number;
    const char *layer = name_at(list, launch->layer);
    if (!layer) return dsa_fail(message, "launches.bin: launch %u has no layer", number);
    if (launch->kernel >= list->header->kernels)
        return dsa_fail(message, "launches.bin: launch of %s: there is no kernel %u", layer, launch->kernel);
    if (!are_extents(launch->grid, most_grid) || !are_extents(launch->block, most_block) ||
        launch->block[0] * launch->block[1] * launch->block[2] > 1024)
        return dsa_fail(message, "launches.bin: launch of %s: no GPU has such a grid or block", layer);
    if (launch->shared_bytes > list->kernels[launch->kernel].shared_bytes)
        return dsa_fail(message, "launches.bin: launch of %s: more shared memory than its kernel asks for", layer);
    if (launch->parameter_bytes > DSA_MAX_PARAMETERS || launch->parameters > list->header->parameter_bytes ||
        launch->parameter_bytes > list->header->parameter_bytes - launch->parameters)
        return dsa_fail(message, "launches.bin: launch of %s: parameters that are too long or not there", layer);
    return check_relocations(list, launch, layer, message);
}

/* ----------------------------------------------------------------------------------------------------- the whole file */

/* Sets the pointers to the tables, which must fill the file exactly. */
static bool find_tables(struct launch_list *list, size_t size, struct message message) {
    const struct list_header *header = list->header;
    uint64_t at = sizeof *header;
#define TABLE(field, count)                                                                                            \
    list->field = (const void *)((const char *)header + (at <= size ? at : 0));                                        \
    at += (uint64_t)(count) * sizeof *list->field
    TABLE(outside, (uint64_t)header->inputs + header->outputs);
    TABLE(tensors, header->tensors);
    TABLE(data, header->data);
    TABLE(modules, header->modules);
    TABLE(kernels, header->kernels);
    TABLE(launches, header->launches);
    TABLE(relocations, header->relocations);
    TABLE(names, header->name_bytes);
    TABLE(parameters, header->parameter_bytes);
#undef TABLE
    if (header->file_bytes != at || at != size)
        return dsa_fail(message, "launches.bin: needs %llu bytes, has %zu", (unsigned long long)at, size);
    return are_names(list->names, header->name_bytes) ||
           dsa_fail(message, "launches.bin: has a name that is empty, too long, or cannot be printed");
}

static bool check_header(const struct list_header *header, size_t size, struct message message) {
    if (size < sizeof *header || memcmp(header->magic, DSA_MAGIC, sizeof header->magic))
        return dsa_fail(message, "launches.bin: is not a list of launches");
    if (header->version != DSA_VERSION || header->header_bytes != sizeof *header)
        return dsa_fail(message, "launches.bin: needs version %d, has %u with a header of %u bytes", DSA_VERSION,
                        header->version, header->header_bytes);
    if (header->arena_bytes > DSA_MAX_BYTES)
        return dsa_fail(message, "launches.bin: needs an arena of at most %llu bytes, has %llu",
                        (unsigned long long)DSA_MAX_BYTES, (unsigned long long)header->arena_bytes);
    if (!memchr(header->architecture, 0, sizeof header->architecture))
        return dsa_fail(message, "launches.bin: the architecture has no end");
    return (uint64_t)header->inputs + header->outputs <= DSA_MAX_OUTSIDE ||
           dsa_fail(message, "launches.bin: needs at most %d inputs and outputs", DSA_MAX_OUTSIDE);
}

bool dsa_read_list(const void *bytes, size_t size, struct launch_list *list, struct message message) {
    const struct list_header *header = list->header = bytes;
    if (!check_header(header, size, message) || !find_tables(list, size, message)) return false;
    for (uint32_t k = 0; k < header->tensors; k++)
        if (!is_in_arena(list, list->tensors[k].offset, list->tensors[k].bytes))
            return dsa_fail(message, "launches.bin: tensor %u ends beyond the arena", k);
    for (uint32_t k = 0; k < header->inputs + header->outputs; k++)
        if (!check_outside(list, k, message)) return false;
    for (uint32_t k = 0; k < header->data; k++) {
        if (!check_file(list, list->data[k].file, message)) return false;
        if (!is_in_arena(list, list->data[k].offset, list->data[k].bytes))
            return dsa_fail(message, "launches.bin: %s ends beyond the arena", list->names + list->data[k].file);
    }
    for (uint32_t k = 0; k < header->modules; k++)
        if (!check_file(list, list->modules[k].cubin, message)) return false;
    for (uint32_t k = 0; k < header->kernels; k++)
        if (!check_kernel(list, k, message)) return false;
    for (uint32_t k = 0; k < header->launches; k++)
        if (!check_launch(list, k, message)) return false;
    return true;
}
