/* A program around runner.h: runs a compiled network on raw files. */
#include "runner.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int complain(const char *who, const char *what) {
    fprintf(stderr, "error: %s: %s\n", who, what);
    return 1;
}

/* Copies between a raw file and the host's memory: writes where `output`. */
static bool transfer(const char *path, void *data, size_t bytes, bool output) {
    FILE *file = fopen(path, output ? "wb" : "rb");
    if (!file) return complain(path, strerror(errno)), false;
    size_t moved = output ? fwrite(data, 1, bytes, file) : fread(data, 1, bytes, file);
    bool good = moved == bytes && (output || fgetc(file) == EOF);
    good = !fclose(file) && good;
    if (!good) fprintf(stderr, "error: %s: needs %zu bytes\n", path, bytes);
    return good;
}

/* Handles one NAME=FILE. */
static int move(const dsa_network *network, const char *argument, bool output) {
    size_t count;
    const dsa_tensor *tensors = output ? dsa_outputs(network, &count) : dsa_inputs(network, &count);
    const char *file = strrchr(argument, '=');
    for (size_t k = 0; file && k < count; k++) {
        size_t length = strlen(tensors[k].name);
        if (length != (size_t)(file - argument) || strncmp(tensors[k].name, argument, length)) continue;
        void *data = malloc(tensors[k].bytes + 1);
        int code = data && output ? dsa_get_output(network, k, data) : 0;
        bool good = data && !code && transfer(file + 1, data, tensors[k].bytes, output);
        if (good && !output) code = dsa_set_input(network, k, data);
        free(data);
        return code ? complain(argument, dsa_error_text(network, code)) : !good;
    }
    return complain(argument, output ? "does not name an output of this network and a file"
                                     : "does not name an input of this network and a file");
}

static void describe(const char *what, const dsa_tensor *tensors, size_t count) {
    for (size_t k = 0; k < count; k++) {
        printf("%s %s: %s", what, tensors[k].name, tensors[k].dtype);
        for (size_t axis = 0; axis < tensors[k].rank; axis++)
            printf(" %llu", (unsigned long long)tensors[k].shape[axis]);
        printf(", %zu bytes\n", tensors[k].bytes);
    }
}

static int run(const dsa_network *network, int count, char **arguments) {
    size_t inputs, outputs, given = 0;
    const dsa_tensor *in = dsa_inputs(network, &inputs), *out = dsa_outputs(network, &outputs);
    if (count == 0) return describe("input ", in, inputs), describe("output", out, outputs), 0;
    for (int k = 0; k < count; k += 2)
        if (!strcmp(arguments[k], "--input")) {
            if (move(network, arguments[k + 1], false)) return 1;
            given++;
        }
    if (given != inputs) return complain("--input", "needs one for each input");
    int code = dsa_run(network, NULL, NULL);
    if (code) return complain("run", dsa_error_text(network, code));
    for (int k = 0; k < count; k += 2)
        if (!strcmp(arguments[k], "--output") && move(network, arguments[k + 1], true)) return 1;
    return 0;
}

int main(int count, char **arguments) {
    char error[1024];
    bool usage = count < 2 || count % 2;
    for (int k = 2; k < count && !usage; k += 2)
        usage = strcmp(arguments[k], "--input") && strcmp(arguments[k], "--output");
    if (usage) {
        fprintf(stderr, "usage: %s FOLDER [--input NAME=FILE]... [--output NAME=FILE]...\n"
                        "Runs the compiled network of a folder on raw files, whose bytes are those on the device;\n"
                        "without files it lists inputs and outputs.\n", arguments[0]);
        return 2;
    }
    dsa_network *network = dsa_create(arguments[1], error, sizeof error);
    if (!network) return fprintf(stderr, "error: %s\n", error), 1;
    int code = run(network, count - 2, arguments + 2);
    dsa_destroy(network);
    return code;
}
