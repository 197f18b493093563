/* launches.bin: the launches of launches.json as records that C reads in place. Inside the runner only; see runner.h.
 *
 *     header | outside | tensors | data | modules | kernels | launches | relocations | names | parameters
 *
 * The tables follow the header in this order, without gaps, and fill the file; the header says how many records each
 * has. Records refer to other records by number. `names` holds texts with a zero after each, to which records refer by
 * offset; `parameters` holds the parameter blocks of the launches. Numbers are little-endian; `zero` is for alignment.
 */
#ifndef DSA_LAUNCH_LIST_H
#define DSA_LAUNCH_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DSA_MAGIC "dsalist\n"
#define DSA_MAX_BYTES ((uint64_t)1 << 46)
enum { DSA_VERSION = 1, DSA_MAX_RANK = 16, DSA_MAX_PARAMETERS = 4096, DSA_MAX_OUTSIDE = 4096 };

struct list_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t file_bytes, arena_bytes;
    char architecture[8]; /* such as sm_80, filled up with zeros */
    uint32_t inputs, outputs, tensors, data, modules, kernels, launches, relocations, name_bytes,
        parameter_bytes;
};
/* An input, or after all of them an output. `dtype` is a number of DSA_DTYPES; `axes` counts if `has_axes`. */
struct list_outside {
    uint32_t tensor, name, dtype, rank, has_axes, zero;
    uint64_t shape[DSA_MAX_RANK], axes[DSA_MAX_RANK];
};
/* A range of the arena. */
struct list_tensor { uint64_t offset, bytes; };
/* A file that is copied to a range of the arena before the first launch. */
struct list_data { uint64_t offset, bytes; uint32_t file, zero; };
struct list_module { uint32_t cubin, zero; };
/* `layer` is that of the first launch, for messages; `shared_bytes` is the most dynamic shared memory of a launch. */
struct list_kernel { uint32_t module, name, layer, shared_bytes; };
/* Its block of parameters, and its relocations, which follow those of the launch before it. */
struct list_launch {
    uint32_t layer, kernel, grid[3], block[3], shared_bytes, parameters, parameter_bytes, first_relocation, relocations,
        zero;
};
/* The 8 bytes at `at` of the parameters receive the address of a tensor, plus `plus`. */
struct list_relocation { uint64_t plus; uint32_t at, tensor; };

/* Pointers into the bytes of the file. */
struct launch_list {
    const struct list_header *header;
    const struct list_outside *outside;
    const struct list_tensor *tensors;
    const struct list_data *data;
    const struct list_module *modules;
    const struct list_kernel *kernels;
    const struct list_launch *launches;
    const struct list_relocation *relocations;
    const char *names;
    const uint8_t *parameters;
};

/* Types of elements, as in NumPy, and their bytes. */
struct dtype { const char *name; uint64_t bytes; };
extern const struct dtype DSA_DTYPES[8];

/* The caller's place for a message. */
struct message { char *text; size_t bytes; };

/* Writes a message; returns false. */
bool dsa_fail(struct message message, const char *format, ...);

/* Checks the bytes of launches.bin, which are aligned to 8 and outlive the list. False after a message. */
bool dsa_read_list(const void *bytes, size_t size, struct launch_list *list, struct message message);

#endif
