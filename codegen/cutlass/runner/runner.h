/* Runs a compiled network on an NVIDIA GPU: reads `launches.bin` of a folder and starts its kernels in order.
 *
 *     char error[512];
 *     dsa_network *network = dsa_create("folder", error, sizeof error);    // NULL: `error` says why
 *     void *pointers[] = {x, y};                                           // inputs, then outputs, on the device
 *     int code = dsa_run(network, stream, pointers);                       // 0, or CUDA's CUresult
 *     dsa_destroy(network);
 *
 * Needs no CUDA toolkit: libcuda.so.1, which comes with the driver, is opened by dsa_create. Needs a little-endian
 * POSIX host with 64 bits. What is read may come from a stranger and is checked; the kernels are the stranger's code.
 */
#ifndef DSA_RUNNER_H
#define DSA_RUNNER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *CUstream; /* as in cuda.h; a cudaStream_t is the same */
typedef struct dsa_network dsa_network;

/* An input or output, as it lies on the device. `axes`: for each of them the axis of the ONNX tensor, if `has_axes`. */
typedef struct {
    const char *name;
    const char *dtype; /* as in NumPy: float16, float32, int64, ... */
    size_t rank;
    const uint64_t *shape;
    size_t has_axes;
    const uint64_t *axes;
    size_t bytes;
    int fixed; /* it shares memory with other tensors: no pointer may stand for it */
} dsa_tensor;

/* The network of a folder, loaded into the current context, or where there is none into the primary one of device 0.
 * NULL where that cannot be; `error` then has a sentence. */
dsa_network *dsa_create(const char *folder, char *error, size_t error_bytes);

/* Inputs and outputs, `count` of them, in the order of their pointers. They live as long as the network. */
const dsa_tensor *dsa_inputs(const dsa_network *network, size_t *count);
const dsa_tensor *dsa_outputs(const dsa_network *network, size_t *count);

/* Starts the kernels on a stream and does not wait. `pointers` has a device address, aligned to 16 bytes, for each
 * input and then for each output; NULL stands for the network's own memory, in place of one or of the whole list.
 * Nothing but kernels is started, so the stream may be captured into a CUDA graph. It changes nothing in the network,
 * but all runs share its memory for values: they must be in one order, by one stream or by events. 0, or a CUresult: 1
 * (invalid value) for a pointer that is not aligned, or to a tensor that is `fixed`. */
int dsa_run(const dsa_network *network, CUstream stream, void *const *pointers);

/* Copies an input from the host, or an output to it, in the network's own memory; both wait for the device. */
int dsa_set_input(const dsa_network *network, size_t number, const void *from);
int dsa_get_output(const dsa_network *network, size_t number, void *to);

/* CUDA's words for a code that is not 0. */
const char *dsa_error_text(const dsa_network *network, int code);

/* Waits for the device and gives everything back. NULL is allowed. */
void dsa_destroy(dsa_network *network);

#ifdef __cplusplus
}
#endif
#endif
