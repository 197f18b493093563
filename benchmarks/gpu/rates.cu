// Rates of a GPU: bandwidths by copies, products by registers and shared memory alone. Compiled with SM90A for wgmma.
#include <cstdint>

// y = x, `passes` times over: of the main memory where both are large, of the L2 where both stay in it.
extern "C" __global__ void copied(const uint4* x, uint4* y, int vectors, int passes) {
  for (int pass = 0; pass < passes; ++pass)
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += gridDim.x * blockDim.x) {
      uint4 v;
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(x + i));
      y[i] = v;
    }
}

// Nothing: what is left is the time from one launch to the next.
extern "C" __global__ void nothing() {}

// Products of ones by mma.sync m16n8k16, eight independent sums a warp: each element is 16 * steps.
extern "C" __global__ void mma(float* y, int steps) {
  float d[8][4] = {};
  const uint32_t ones = 0x3c003c00;
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int k = 0; k < 8; ++k)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %4, %4, %4}, {%4, %4}, "
          "{%0, %1, %2, %3};"
          : "+f"(d[k][0]), "+f"(d[k][1]), "+f"(d[k][2]), "+f"(d[k][3])
          : "r"(ones));
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += d[k][0] + d[k][1] + d[k][2] + d[k][3];
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

#ifdef SM90A
// Products of ones by wgmma m64n128k16, both factors in shared memory: each element is 16 * steps.
extern "C" __global__ void wgmma(float* y, int steps) {
  __shared__ __align__(1024) uint32_t a[64 * 16 / 2], b[128 * 16 / 2];
  for (int i = threadIdx.x; i < 64 * 16 / 2; i += blockDim.x) a[i] = 0x3c003c00;
  for (int i = threadIdx.x; i < 128 * 16 / 2; i += blockDim.x) b[i] = 0x3c003c00;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  // no swizzle: core matrices of 8 rows x 16 bytes, 128 bytes apart along depth, 256 along rows
  const auto described = [](const void* at) {
    const uint64_t address = __cvta_generic_to_shared(at);
    return ((address & 0x3ffff) >> 4) | (uint64_t(128 >> 4) << 16) | (uint64_t(256 >> 4) << 32);
  };
  const uint64_t da = described(a), db = described(b);
  float d[64] = {};
  for (int step = 0; step < steps; ++step) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, "
        "%11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, "
        "%31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "
        "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
          "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
          "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
          "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
          "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),
          "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),
          "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),
          "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(da), "l"(db));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 64; ++k) sum += d[k];
  y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
#endif
