// C (m x n, half) = A B with wgmma m64n64k16, 128-byte swizzled tiles, sums in f32, cp.async in two buffers.
// A is m x k (K-major) or k x m (MN-major), B is n x k (K-major) or k x n; contiguous sizes are multiples of 8.
// Two warp groups: 128 rows, 64 columns and 64 of K a step.
#include <cuda_fp16.h>
#include <cstdint>

constexpr int TILE_M = 128, TILE_N = 64, TILE_K = 64, BUFFER = (TILE_M + TILE_N) * TILE_K * 2;

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ __forceinline__ void copy16(uint32_t to, const half* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0));
}

// A tile of `Rows` rows and 64 of K: K-major in rows of 128 bytes; MN-major in blocks of 64 rows, 128 bytes for each k.
template <bool Turned, int Rows>
__device__ __forceinline__ void load(uint32_t to, const half* x, int row0, int k0, int rows, int depth) {
  for (int chunk = threadIdx.x; chunk < Rows * 8; chunk += 256) {
    if (!Turned) {
      int row = chunk / 8, unit = chunk % 8;
      bool there = row0 + row < rows && k0 + unit * 8 < depth;
      const half* from = there ? x + size_t(row0 + row) * depth + k0 + unit * 8 : x;
      copy16(to + row * 128 + ((unit ^ (row & 7)) << 4), from, there);
    } else {
      int k = chunk / (Rows / 8), unit = chunk % (Rows / 8);
      bool there = k0 + k < depth && row0 + unit * 8 < rows;
      const half* from = there ? x + size_t(k0 + k) * rows + row0 + unit * 8 : x;
      copy16(to + unit / 8 * 8192 + k * 128 + ((unit % 8 ^ (k & 7)) << 4), from, there);
    }
  }
}

// 128-byte swizzle; bytes from one group of 8 rows (K-major) or of 8 k (MN-major) to the next: 1024.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  return uint64_t((address & 0x3FFFF) >> 4) | uint64_t(8192 >> 4) << 16 | uint64_t(1024 >> 4) << 32 | 1ull << 62;
}

#define SUMS(d) \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), \
  "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), \
  "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), \
  "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define REGISTERS \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29," \
  "%30,%31}"

template <int TurnedA, int TurnedB>
__device__ __forceinline__ void multiply(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " REGISTERS ", %32, %33, p, 1, 1, %35, %36; }\n"
               : SUMS(d) : "l"(a), "l"(b), "r"(keep), "n"(TurnedA), "n"(TurnedB));
}
template <int TurnedB>
__device__ __forceinline__ void multiply(float (&d)[32], const uint32_t (&a)[4], uint64_t b, int keep) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " REGISTERS ", {%32,%33,%34,%35}, %36, p, 1, 1, %38; }\n"
               : SUMS(d) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep), "n"(TurnedB));
}

template <bool TurnedA, bool TurnedB, bool InRegisters>
__device__ __forceinline__ void gemm(const half* a, const half* b, half* c, int m, int n, int depth) {
  extern __shared__ __align__(1024) unsigned char tiles[];
  const int row0 = blockIdx.x * TILE_M, column0 = blockIdx.y * TILE_N;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const uint32_t start = shared_address(tiles);
  float d[32];
  for (int i = 0; i < 32; ++i) d[i] = 0;
  const int steps = (depth + TILE_K - 1) / TILE_K;
  load<TurnedA, TILE_M>(start, a, row0, 0, m, depth);
  load<TurnedB, TILE_N>(start + TILE_M * TILE_K * 2, b, column0, 0, n, depth);
  asm volatile("cp.async.commit_group;");
  for (int step = 0; step < steps; ++step) {
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const uint32_t here = start + (step & 1) * BUFFER, there = start + (~step & 1) * BUFFER;
    if (step + 1 < steps) {
      load<TurnedA, TILE_M>(there, a, row0, (step + 1) * TILE_K, m, depth);
      load<TurnedB, TILE_N>(there + TILE_M * TILE_K * 2, b, column0, (step + 1) * TILE_K, n, depth);
      asm volatile("cp.async.commit_group;");
    }
    uint32_t left[4][4];
    if (InRegisters) {
      for (int k = 0; k < 4; ++k) {
        int row = group * 64 + warp * 16 + lane % 16, unit = 2 * k + lane / 16;
        uint32_t address = here + row * 128 + ((unit ^ (row & 7)) << 4);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(left[k][0]), "=r"(left[k][1]), "=r"(left[k][2]), "=r"(left[k][3]) : "r"(address));
      }
    }
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint64_t right = descriptor(here + TILE_M * TILE_K * 2 + k * (TurnedB ? 2048 : 32));
      if (InRegisters)
        multiply<TurnedB>(d, left[k], right, 1);
      else
        multiply<TurnedA, TurnedB>(d, descriptor(here + group * 8192 + k * (TurnedA ? 2048 : 32)), right, 1);
    }
    asm volatile("wgmma.commit_group.sync.aligned;");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : SUMS(d)::"memory");
  }
  for (int i = 0; i < 32; i += 2) {
    int row = row0 + group * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8, column = column0 + i / 4 * 8 + lane % 4 * 2;
    if (row < m && column < n) *reinterpret_cast<half2*>(c + size_t(row) * n + column) = __floats2half2_rn(d[i], d[i + 1]);
  }
}

#define KERNEL(name, ta, tb, rs) \
  extern "C" __global__ void __launch_bounds__(256) name(const half* a, const half* b, half* c, int m, int n, int k) { \
    gemm<ta, tb, rs>(a, b, c, m, n, k); \
  }
KERNEL(gemm_kk, false, false, false)
KERNEL(gemm_mm, true, true, false)
KERNEL(gemm_km, false, true, false)
KERNEL(gemm_rk, false, false, true)
KERNEL(gemm_rm, false, true, true)
