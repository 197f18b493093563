/* Reads `launches.json`: JSON by tables of what its objects have, then what tables cannot say. See launch_list.h. */
#include "launch_list.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

bool dsa_say(struct told told, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    if (told.bytes) vsnprintf(told.error, told.bytes, format, arguments);
    va_end(arguments);
    return false;
}

/* -------------------------------------------------------------------------------------------- JSON, by tables of it */

enum kind { NAME, NUMBER, NUMBERS, HEXADECIMAL, LIST };
struct type;
struct field {
    const char *key;
    enum kind kind;
    size_t offset;
    uint64_t most; /* of a number; of the characters of a name; of the digits of a hexadecimal */
    const struct type *items;
    bool optional;
};
struct type { const char *name; size_t size, count; const struct field *fields; };

static const struct field RELOCATION_FIELDS[] = {
    {"at", NUMBER, offsetof(struct relocation, at), DSA_MAX_PARAMETERS, NULL, false},
    {"tensor", NUMBER, offsetof(struct relocation, tensor), 1 << 24, NULL, false},
    {"plus", NUMBER, offsetof(struct relocation, plus), DSA_MAX_BYTES, NULL, true},
};
static const struct type RELOCATION = {
    "relocation", sizeof(struct relocation), COUNT(RELOCATION_FIELDS), RELOCATION_FIELDS};
static const struct field LAUNCH_FIELDS[] = {
    {"layer", NAME, offsetof(struct launch, layer), 1024, NULL, false},
    {"module", NUMBER, offsetof(struct launch, module), 1 << 24, NULL, false},
    {"kernel", NAME, offsetof(struct launch, kernel), 256, NULL, false},
    {"grid", NUMBERS, offsetof(struct launch, grid), INT_MAX, NULL, false},
    {"block", NUMBERS, offsetof(struct launch, block), 1024, NULL, false},
    {"shared_bytes", NUMBER, offsetof(struct launch, shared_bytes), 1 << 20, NULL, true},
    {"parameters", HEXADECIMAL, offsetof(struct launch, parameters), 2 * DSA_MAX_PARAMETERS, NULL, false},
    {"relocations", LIST, offsetof(struct launch, relocations), 0, &RELOCATION, true},
};
static const struct type LAUNCH = {"launch", sizeof(struct launch), COUNT(LAUNCH_FIELDS), LAUNCH_FIELDS};
static const struct field MODULE_FIELDS[] = {
    {"source", NAME, offsetof(struct module, source), 200, NULL, false},
    {"ptx", NAME, offsetof(struct module, ptx), 200, NULL, false},
    {"cubin", NAME, offsetof(struct module, cubin), 200, NULL, false},
};
static const struct type MODULE = {"module", sizeof(struct module), COUNT(MODULE_FIELDS), MODULE_FIELDS};
static const struct field DATA_FIELDS[] = {
    {"file", NAME, offsetof(struct data, file), 200, NULL, false},
    {"offset", NUMBER, offsetof(struct data, offset), DSA_MAX_BYTES, NULL, false},
    {"bytes", NUMBER, offsetof(struct data, bytes), DSA_MAX_BYTES, NULL, false},
};
static const struct type DATA = {"data", sizeof(struct data), COUNT(DATA_FIELDS), DATA_FIELDS};
static const struct field TENSOR_FIELDS[] = {
    {"name", NAME, offsetof(struct tensor, name), 1024, NULL, false},
    {"role", NAME, offsetof(struct tensor, role), 16, NULL, false},
    {"dtype", NAME, offsetof(struct tensor, dtype), 16, NULL, false},
    {"shape", NUMBERS, offsetof(struct tensor, shape), (uint64_t)1 << 40, NULL, false},
    {"layout", NUMBERS, offsetof(struct tensor, layout), 64, NULL, true},
    {"offset", NUMBER, offsetof(struct tensor, offset), DSA_MAX_BYTES, NULL, false},
    {"bytes", NUMBER, offsetof(struct tensor, bytes), DSA_MAX_BYTES, NULL, false},
};
static const struct type TENSOR = {"tensor", sizeof(struct tensor), COUNT(TENSOR_FIELDS), TENSOR_FIELDS};
static const struct field LIST_FIELDS[] = {
    {"format", NAME, offsetof(struct launches, format), 64, NULL, false},
    {"architecture", NAME, offsetof(struct launches, architecture), 16, NULL, false},
    {"arena_bytes", NUMBER, offsetof(struct launches, arena_bytes), DSA_MAX_BYTES, NULL, false},
    {"tensors", LIST, offsetof(struct launches, tensors), 0, &TENSOR, false},
    {"data", LIST, offsetof(struct launches, data), 0, &DATA, false},
    {"modules", LIST, offsetof(struct launches, modules), 0, &MODULE, false},
    {"launches", LIST, offsetof(struct launches, launches), 0, &LAUNCH, false},
};
static const struct type LAUNCHES = {"list", sizeof(struct launches), COUNT(LIST_FIELDS), LIST_FIELDS};

/* After the first mistake `failed` stays set, nothing more is read, and every function returns soon. */
struct reader {
    const char *start, *at, *end;
    const char *who; /* what is being read, for messages */
    struct told told;
    bool failed;
};

static void stop(struct reader *r, const char *what) {
    if (!r->failed)
        dsa_say(r->told, "launches.json: byte %td: %s: %s", r->at - r->start, r->who, what);
    r->failed = true;
}

static char peek(struct reader *r) {
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')) r->at++;
    return r->failed || r->at == r->end ? 0 : *r->at;
}

static bool take(struct reader *r, char wanted) {
    if (peek(r) != wanted || r->failed || r->at == r->end) return false;
    r->at++;
    return true;
}

static void need(struct reader *r, char wanted) {
    char text[] = "needs ' '";
    text[7] = wanted;
    if (!take(r, wanted)) stop(r, text);
}

static unsigned hexadecimal(struct reader *r, bool capitals) {
    char digit = r->at < r->end ? *r->at : 0;
    if (digit >= '0' && digit <= '9') return r->at++, (unsigned)(digit - '0');
    if (digit >= 'a' && digit <= 'f') return r->at++, (unsigned)(digit - 'a' + 10);
    if (capitals && digit >= 'A' && digit <= 'F') return r->at++, (unsigned)(digit - 'A' + 10);
    stop(r, "needs a hexadecimal digit");
    return 0;
}

static unsigned code_unit(struct reader *r) {
    unsigned unit = 0;
    for (int k = 0; k < 4; k++) unit = unit << 4 | hexadecimal(r, true);
    return unit;
}

/* One character of a string, as UTF-8 at `to`, which has room for four bytes; their number. */
static size_t character(struct reader *r, char *to) {
    unsigned code = (unsigned char)*r->at++;
    if (code < 0x20 || code == 0x7f) stop(r, "has a control character");
    if (code != '\\') return *to = (char)code, 1;
    char escape = r->at < r->end ? *r->at++ : 0;
    if (escape == '"' || escape == '\\' || escape == '/') return *to = escape, 1;
    if (escape != 'u') return stop(r, "has an escape that is not known"), 0;
    code = code_unit(r);
    if (code >= 0xd800 && code < 0xe000) {
        if (code >= 0xdc00 || r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
            return stop(r, "has half a surrogate pair"), 0;
        r->at += 2;
        unsigned low = code_unit(r);
        if (low < 0xdc00 || low >= 0xe000) return stop(r, "has half a surrogate pair"), 0;
        code = 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
    }
    if (code < 0x20 || code == 0x7f) return stop(r, "has a control character"), 0;
    if (code < 0x80) return *to = (char)code, 1;
    size_t more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char first[] = {0, 0xc0, 0xe0, 0xf0};
    to[0] = (char)(first[more] | code >> 6 * more);
    for (size_t k = 1; k <= more; k++) to[k] = (char)(0x80 | (code >> 6 * (more - k) & 0x3f));
    return more + 1;
}

/* A string of 1 to `most` bytes; the caller frees it. NULL after a mistake. */
static char *string(struct reader *r, size_t most) {
    need(r, '"');
    const char *quote = r->at;
    while (!r->failed && quote < r->end && *quote != '"') quote += *quote == '\\' && r->end - quote > 1 ? 2 : 1;
    if (r->failed || quote >= r->end) return stop(r, "has a string without an end"), NULL;
    if ((size_t)(quote - r->at) > 6 * most) return stop(r, "has a string that is too long"), NULL;
    char *text = malloc((size_t)(quote - r->at) + 5);
    size_t size = 0;
    if (!text) return stop(r, "out of memory"), NULL;
    while (!r->failed && r->at < quote) size += character(r, text + size);
    if (size == 0 || size > most) stop(r, size ? "has a string that is too long" : "has an empty string");
    if (r->failed) return free(text), NULL;
    text[size] = 0;
    r->at = quote + 1;
    return text;
}

static uint64_t number(struct reader *r, uint64_t most) {
    uint64_t value = 0;
    char first = peek(r);
    if (first < '0' || first > '9') return stop(r, "needs a whole number"), 0;
    const char *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9' && value <= most)
        value = 10 * value + (uint64_t)(*r->at++ - '0');
    bool more = r->at < r->end && (*r->at == '.' || *r->at == 'e' || *r->at == 'E');
    if (value > most || more || (first == '0' && r->at - start > 1)) return stop(r, "has a number out of range"), 0;
    return value;
}

static void read_object(struct reader *r, const struct type *type, char *into);

static void read_items(struct reader *r, const struct type *type, struct list *list) {
    size_t room = 0;
    need(r, '[');
    if (take(r, ']')) return;
    do {
        if (list->count == room) {
            room = room ? 2 * room : 8;
            void *grown = room > (1 << 24) ? NULL : realloc(list->at, room * type->size);
            if (!grown) {
                stop(r, "has more items than there is memory for");
                return;
            }
            list->at = grown;
        }
        char *item = (char *)list->at + list->count++ * type->size;
        memset(item, 0, type->size);
        read_object(r, type, item);
    } while (take(r, ','));
    need(r, ']');
}

static void read_numbers(struct reader *r, uint64_t most, struct numbers *numbers) {
    need(r, '[');
    if (take(r, ']')) return;
    do {
        if (numbers->count == DSA_MAX_RANK) stop(r, "has more than 16 numbers in a list");
        else numbers->at[numbers->count++] = number(r, most);
    } while (take(r, ','));
    need(r, ']');
}

static void read_hexadecimal(struct reader *r, size_t most, struct bytes *bytes) {
    need(r, '"');
    const char *quote = r->failed ? NULL : memchr(r->at, '"', (size_t)(r->end - r->at));
    if (!quote || (size_t)(quote - r->at) > most || (quote - r->at) % 2) stop(r, "needs pairs of hexadecimal digits");
    else if (!(bytes->at = malloc((size_t)(quote - r->at) / 2 + 1))) stop(r, "out of memory");
    while (!r->failed && r->at < quote) {
        unsigned high = hexadecimal(r, false);
        bytes->at[bytes->count++] = (uint8_t)(high << 4 | hexadecimal(r, false));
    }
    need(r, '"');
}

static void read_field(struct reader *r, const struct field *field, char *into) {
    switch (field->kind) {
    case NAME: *(char **)(void *)(into + field->offset) = string(r, (size_t)(4 * field->most)); break;
    case NUMBER: *(uint64_t *)(void *)(into + field->offset) = number(r, field->most); break;
    case NUMBERS: read_numbers(r, field->most, (struct numbers *)(void *)(into + field->offset)); break;
    case HEXADECIMAL: read_hexadecimal(r, (size_t)field->most, (struct bytes *)(void *)(into + field->offset)); break;
    case LIST: read_items(r, field->items, (struct list *)(void *)(into + field->offset)); break;
    }
}

/* An object with the keys of its table, each once, and no other: one that is not known may change what others mean. */
static void read_object(struct reader *r, const struct type *type, char *into) {
    const char *outer = r->who;
    unsigned seen = 0;
    r->who = type->name;
    need(r, '{');
    for (bool more = !take(r, '}'); more && !r->failed; more = !take(r, '}')) {
        if (seen) need(r, ',');
        char *key = string(r, 64);
        need(r, ':');
        for (size_t k = 0; key && k <= type->count; k++) {
            if (k == type->count) stop(r, "has a key that is not known");
            else if (!strcmp(key, type->fields[k].key)) {
                if (seen >> k & 1) stop(r, "has a key twice");
                else if (!r->failed) read_field(r, &type->fields[k], into);
                seen |= 1u << k;
                break;
            }
        }
        free(key);
    }
    for (size_t k = 0; k < type->count && !r->failed; k++)
        if (!type->fields[k].optional && !(seen >> k & 1)) {
            char text[80];
            dsa_say((struct told){text, sizeof text}, "lacks the key %s", type->fields[k].key);
            stop(r, text);
        }
    r->who = outer;
}

static void free_object(const struct type *type, char *object) {
    for (const struct field *field = type->fields; field < type->fields + type->count; field++) {
        char *place = object + field->offset;
        if (field->kind == NAME) free(*(char **)(void *)place);
        if (field->kind == HEXADECIMAL) free(((struct bytes *)(void *)place)->at);
        if (field->kind != LIST) continue;
        struct list *list = (struct list *)(void *)place;
        for (size_t k = 0; k < list->count; k++) free_object(field->items, (char *)list->at + k * field->items->size);
        free(list->at);
    }
}

/* ---------------------------------------------------------------------------------------------- what must hold, too */

static bool one_of(const char *word, const char *const *words, size_t count, size_t *number) {
    for (*number = 0; *number < count; ++*number)
        if (!strcmp(word, words[*number])) return true;
    return false;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

static bool is_kernel_name(const char *name) {
    for (const char *c = name; *c; c++)
        if (!is_letter(*c) && *c != '$' && (c == name || *c < '0' || *c > '9')) return false;
    return *name && strlen(name) <= 256;
}

/* Letters, digits, `_.-`, in one folder at most, none of both starting with a dot. */
static bool is_file_name(const char *name) {
    int slashes = 0;
    for (const char *c = name; *c; c++) {
        bool starts = c == name || c[-1] == '/';
        if (*c == '/' && !starts && c[1]) slashes++;
        else if (!is_letter(*c) && (*c < '0' || *c > '9') && *c != '-' && (*c != '.' || starts)) return false;
    }
    return *name && slashes <= 1 && strlen(name) <= 200;
}

static bool check_tensor(struct launches *list, struct tensor *tensor, struct told told) {
    static const char *const roles[] = {"input", "output", "value", "constant", "workspace"};
    static const char *const dtypes[] = {"float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"};
    static const uint64_t sizes[] = {2, 4, 8, 1, 1, 4, 8, 1};
    size_t role, dtype;
    if (!one_of(tensor->role, roles, COUNT(roles), &role))
        return dsa_say(told, "launches.json: tensor %s: role %s is not known", tensor->name, tensor->role);
    if (!one_of(tensor->dtype, dtypes, COUNT(dtypes), &dtype))
        return dsa_say(told, "launches.json: tensor %s: dtype %s is not known", tensor->name, tensor->dtype);
    if (tensor->offset + tensor->bytes > list->arena_bytes)
        return dsa_say(told, "launches.json: tensor %s ends beyond the arena", tensor->name);
    uint64_t used = sizes[dtype];
    for (size_t k = 0; k < tensor->shape.count; k++) {
        if (tensor->shape.at[k] == 0) return dsa_say(told, "launches.json: tensor %s has an axis of 0", tensor->name);
        used = used > DSA_MAX_BYTES / tensor->shape.at[k] ? DSA_MAX_BYTES + 1 : used * tensor->shape.at[k];
    }
    if (role > 1) return true;
    tensor->used_bytes = used;
    if (used > tensor->bytes)
        return dsa_say(told, "launches.json: %s %s is larger than its range", tensor->role, tensor->name);
    if (tensor->layout.count && tensor->layout.count != tensor->shape.count)
        return dsa_say(told, "launches.json: %s %s has a layout of another rank", tensor->role, tensor->name);
    if (role == 0) list->inputs++;
    else list->outputs++;
    return true;
}

static bool bad_launch(const struct launch *launch, const char *what, struct told told) {
    return dsa_say(told, "launches.json: launch of %s: %s", launch->layer, what);
}

static bool check_launch(const struct launches *list, const struct launch *launch, struct told told) {
    static const uint64_t most_grid[] = {INT_MAX, 65535, 65535}, most_block[] = {1024, 1024, 64};
    const struct tensor *tensors = list->tensors.at;
    const uint64_t *grid = launch->grid.at, *block = launch->block.at;
    bool good = launch->grid.count == 3 && launch->block.count == 3;
    for (int k = 0; k < 3 && good; k++)
        good = grid[k] && grid[k] <= most_grid[k] && block[k] && block[k] <= most_block[k];
    if (!good || block[0] * block[1] * block[2] > 1024) return bad_launch(launch, "no such grid or block", told);
    if (!is_kernel_name(launch->kernel)) return bad_launch(launch, "no such name of a kernel", told);
    if (launch->module >= list->modules.count) return bad_launch(launch, "a module that is not there", told);
    for (size_t k = 0; k < launch->relocations.count; k++) {
        const struct relocation *moved = (const struct relocation *)launch->relocations.at + k;
        if (moved->tensor >= list->tensors.count) return bad_launch(launch, "a tensor that is not there", told);
        if (moved->plus > tensors[moved->tensor].bytes) return bad_launch(launch, "an address beyond its tensor", told);
        if (moved->at + 8 > launch->parameters.count)
            return bad_launch(launch, "a relocation beyond the parameters", told);
    }
    return true;
}

static bool check_file_name(const char *name, struct told told) {
    return is_file_name(name) || dsa_say(told, "launches.json: %s is no name of a file of the folder", name);
}

static bool check_list(struct launches *list, struct told told) {
    if (strcmp(list->format, DSA_FORMAT))
        return dsa_say(told, "launches.json: needs format " DSA_FORMAT ", has %s", list->format);
    for (size_t k = 0; k < list->tensors.count; k++)
        if (!check_tensor(list, (struct tensor *)list->tensors.at + k, told)) return false;
    if (list->inputs + list->outputs > DSA_MAX_OUTSIDE)
        return dsa_say(told, "launches.json: needs at most %d inputs and outputs", DSA_MAX_OUTSIDE);
    for (size_t k = 0; k < list->data.count; k++) {
        const struct data *data = (const struct data *)list->data.at + k;
        if (!check_file_name(data->file, told)) return false;
        if (data->offset + data->bytes > list->arena_bytes)
            return dsa_say(told, "launches.json: %s ends beyond the arena", data->file);
    }
    for (size_t k = 0; k < list->modules.count; k++)
        if (!check_file_name(((const struct module *)list->modules.at)[k].cubin, told)) return false;
    for (size_t k = 0; k < list->launches.count; k++)
        if (!check_launch(list, (const struct launch *)list->launches.at + k, told)) return false;
    return true;
}

bool dsa_read_list(const char *text, size_t size, struct launches *list, struct told told) {
    struct reader r = {text, text, text + size, "list", told, false};
    read_object(&r, &LAUNCHES, (char *)list);
    peek(&r);
    if (!r.failed && r.at != r.end) stop(&r, "has something behind its end");
    return !r.failed && check_list(list, told);
}

void dsa_free_list(struct launches *list) {
    free_object(&LAUNCHES, (char *)list);
}
