/* The list of launches as C sees it; inside the runner only. See runner.h. */
#ifndef DSA_LAUNCH_LIST_H
#define DSA_LAUNCH_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DSA_FORMAT "dsa-sched-launches/1"
#define DSA_MAX_BYTES ((uint64_t)1 << 46)
enum { DSA_MAX_RANK = 16, DSA_MAX_PARAMETERS = 4096, DSA_MAX_OUTSIDE = 4096 };

struct numbers { uint64_t at[DSA_MAX_RANK]; size_t count; };
struct bytes { uint8_t *at; size_t count; };
struct list { void *at; size_t count; };
struct relocation { uint64_t at, tensor, plus; };
struct launch {
    char *layer, *kernel;
    uint64_t module, shared_bytes;
    struct numbers grid, block;
    struct bytes parameters;
    struct list relocations;
    struct function *function;
};
/* A kernel of a module; `name` and `layer` are of the first launch of it. */
struct function { struct function *next; const char *name, *layer; void *handle; uint64_t most_shared_bytes; };
struct module { char *source, *ptx, *cubin; void *loaded; struct function *functions; };
struct data { char *file; uint64_t offset, bytes; };
struct tensor {
    char *name, *role, *dtype;
    struct numbers shape, layout;
    uint64_t offset, bytes;
    uint64_t used_bytes; /* of the elements of an input or output */
    size_t pointer;      /* number among the pointers of dsa_run, counted from 1; 0: none */
};
struct launches {
    char *format, *architecture;
    uint64_t arena_bytes;
    struct list tensors, data, modules, launches;
    size_t inputs, outputs; /* how many */
};

/* Where a message goes. */
struct told { char *error; size_t bytes; };

/* Writes a message; gives false. */
bool dsa_say(struct told told, const char *format, ...);

/* Reads and checks the text of `launches.json`, with a zero behind its `size` bytes, into zeros. False after a message;
 * either way dsa_free_list gives everything back. */
bool dsa_read_list(const char *text, size_t size, struct launches *list, struct told told);
void dsa_free_list(struct launches *list);

#endif
