// What kernels of our own share: halves in memory, floats in registers; indices of at most six axes.
#include <cuda_fp16.h>
#include <cstdint>

// For each of V neighbours, k.
#define EACH _Pragma("unroll") for (int k = 0; k < V; ++k)

struct Dims {
  int v[6];
};

// Where linear index i lies along each axis of an array of these extents.
template <int RANK>
__device__ __forceinline__ void unravel(int i, const Dims& extents, int (&at)[RANK]) {
#pragma unroll
  for (int axis = RANK - 1; axis > 0; --axis) {
    at[axis] = i % extents.v[axis];
    i /= extents.v[axis];
  }
  at[0] = i;
}

template <int RANK>
__device__ __forceinline__ int offset(const int (&at)[RANK], const Dims& strides) {
  int sum = 0;
#pragma unroll
  for (int axis = 0; axis < RANK; ++axis) sum += at[axis] * strides.v[axis];
  return sum;
}

// V neighbours in memory; 8 of them are 16 bytes, aligned.
template <int V>
__device__ __forceinline__ void load(float (&x)[V], const half* from) {
  if constexpr (V == 8) {
    const uint4 bits = *reinterpret_cast<const uint4*>(from);
    const half2* pairs = reinterpret_cast<const half2*>(&bits);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const float2 two = __half22float2(pairs[k]);
      x[2 * k] = two.x, x[2 * k + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) x[k] = __half2float(from[k]);
  }
}

template <int V>
__device__ __forceinline__ void store(half* to, const float (&x)[V]) {
  if constexpr (V == 8) {
    uint4 bits;
    half2* pairs = reinterpret_cast<half2*>(&bits);
#pragma unroll
    for (int k = 0; k < 4; ++k) pairs[k] = __floats2half2_rn(x[2 * k], x[2 * k + 1]);
    *reinterpret_cast<uint4*>(to) = bits;
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) to[k] = __float2half_rn(x[k]);
  }
}

// One element for all V.
template <int V>
__device__ __forceinline__ void fill(float (&x)[V], const half* from) {
  const float value = __half2float(*from);
#pragma unroll
  for (int k = 0; k < V; ++k) x[k] = value;
}

// The larger and the smaller one; a NaN where one is.
__device__ __forceinline__ float larger(float a, float b) {
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}
__device__ __forceinline__ float smaller(float a, float b) {
  asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
  return a;
}

__device__ __forceinline__ float held(float v, float low, float high) { return smaller(larger(v, low), high); }

// ln(1 + e^v); what 1 + e loses of a small e is taken back by the quotient.
__device__ __forceinline__ float softplus(float v) {
  const float e = expf(-fabsf(v)), sum = 1.f + e;
  return (v > 0.f ? v : 0.f) + (sum == 1.f ? e : logf(sum) * (e / (sum - 1.f)));
}
