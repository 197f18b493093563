// Functions of CUDA's library on each element: what nvcc makes of them is long and rounds in all directions.
#include <cuda_fp16.h>

#define FLOATS(name, value)                                                                              \
  extern "C" __global__ void name(const float* a, const float* b, float* y, int n) {                     \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                                       \
    if (i >= n) return;                                                                                  \
    float x = a[i], z = b[i];                                                                            \
    y[i] = (value);                                                                                      \
  }
#define PAIRS(name, value)                                                                               \
  extern "C" __global__ void name(const __half2* a, const __half2* b, __half2* y, int n) {               \
    int i = blockIdx.x * blockDim.x + threadIdx.x;                                                       \
    if (i >= n) return;                                                                                  \
    __half2 x = a[i], z = b[i];                                                                          \
    y[i] = (value);                                                                                      \
  }

FLOATS(exponential, expf(x))
FLOATS(logarithm, logf(fabsf(x)))
FLOATS(tangent, tanhf(x))
FLOATS(error, erff(x))
FLOATS(sigmoid, 1.f / (1.f + expf(-x)))
FLOATS(gelu, 0.5f * x * (1.f + erff(x * 0.70710678f)))
FLOATS(mish, x * tanhf(log1pf(expf(x))))
FLOATS(swish, x / (1.f + __expf(-x)))
FLOATS(power, powf(fabsf(x), z))
FLOATS(inverse_root, rsqrtf(fabsf(x) + 1e-5f))
FLOATS(rounded, roundf(x * 4.f))
FLOATS(even, rintf(x * 4.f))
FLOATS(left_over, fmodf(x, z))
FLOATS(whole, (float)((int)(x * 100.f) / 7 + (int)(z * 50.f) % 5))
FLOATS(clipped, fminf(fmaxf(x, -1.f), 6.f))
PAIRS(pair_exponential, h2exp(x))
PAIRS(pair_fma, __hfma2_relu(x, z, x))
PAIRS(pair_largest, __hmax2_nan(x, z))
PAIRS(pair_greater, __hgt2(x, z))
