// Kernels without matrix instructions: element-wise, pooling, softmax, a depthwise convolution, a pipeline of warps.
#include <cuda_fp16.h>
#include <cstdint>

extern "C" __global__ void relu_add(const half* __restrict__ x, const half* __restrict__ y, half* z, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) z[i] = __float2half(fmaxf(__half2float(x[i]) + __half2float(y[i]), 0.f));
}

// Pairs of halves: x scale + bias.
extern "C" __global__ void scale_bias(const half2* x, const half2* scale, const half2* bias, half2* y, int pairs, int channels) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * blockDim.x)
    y[i] = __hfma2(x[i], scale[i % channels], bias[i % channels]);
}

// 3 x 3 windows, stride 2, padding 1, NHWC, eight channels a thread: largest value, and mean of those inside.
extern "C" __global__ void pool(const half* x, half* largest, half* mean, int n, int h, int w, int c, int p, int q) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, groups = c / 8;
  if (i >= n * p * q * groups) return;
  int group = i % groups, column = i / groups % q, row = i / groups / q % p, image = i / groups / q / p;
  float top[8], sum[8];
  int count = 0;
  for (int k = 0; k < 8; ++k) top[k] = -INFINITY, sum[k] = 0;
  for (int r = row * 2 - 1; r < row * 2 + 2; ++r)
    for (int s = column * 2 - 1; s < column * 2 + 2; ++s) {
      if (r < 0 || r >= h || s < 0 || s >= w) continue;
      uint4 bits = *reinterpret_cast<const uint4*>(x + ((size_t(image) * h + r) * w + s) * c + group * 8);
      const half* values = reinterpret_cast<const half*>(&bits);
      for (int k = 0; k < 8; ++k) {
        float value = __half2float(values[k]);
        top[k] = fmaxf(top[k], value), sum[k] += value;
      }
      ++count;
    }
  for (int k = 0; k < 8; ++k) {
    largest[size_t(i) * 8 + k] = __float2half(top[k]);
    mean[size_t(i) * 8 + k] = __float2half(sum[k] / count);
  }
}

// One block a row of any length: largest value and sum by shuffles in warps, then through shared memory.
extern "C" __global__ void softmax(const half* x, half* y, int columns) {
  __shared__ float part[32];
  const half* row = x + size_t(blockIdx.x) * columns;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  float top = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) top = fmaxf(top, __half2float(row[i]));
  for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
  if (lane == 0) part[warp] = top;
  __syncthreads();
  for (int i = 0; i < warps; ++i) top = fmaxf(top, part[i]);
  __syncthreads();
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += __expf(__half2float(row[i]) - top);
  for (int step = 16; step; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
  if (lane == 0) part[warp] = sum;
  __syncthreads();
  sum = 0;
  for (int i = 0; i < warps; ++i) sum += part[i];
  for (int i = threadIdx.x; i < columns; i += blockDim.x)
    y[size_t(blockIdx.x) * columns + i] = __float2half(__expf(__half2float(row[i]) - top) / sum);
}

// Warp 0 fills a ring of two buffers, warps 1 to 3 add them up: barriers 1, 2 say full, 3, 4 say free.
extern "C" __global__ void pipeline(const float* x, float* y, int chunks) {
  __shared__ float ring[2][96];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  x += size_t(blockIdx.x) * chunks * 96;
  if (warp == 0) {
    for (int i = 0; i < chunks; ++i) {
      int slot = i & 1;
      if (i >= 2) asm volatile("bar.sync %0, 128;" ::"r"(3 + slot) : "memory");
      for (int k = lane; k < 96; k += 32) ring[slot][k] = x[i * 96 + k];
      asm volatile("bar.arrive %0, 128;" ::"r"(1 + slot) : "memory");
    }
  } else {
    float sum = 0;
    for (int i = 0; i < chunks; ++i) {
      int slot = i & 1;
      asm volatile("bar.sync %0, 128;" ::"r"(1 + slot) : "memory");
      sum += ring[slot][threadIdx.x - 32];
      if (i + 2 < chunks) asm volatile("bar.arrive %0, 128;" ::"r"(3 + slot) : "memory");
    }
    y[blockIdx.x * 96 + threadIdx.x - 32] = sum;
  }
}
