// Stages that a thread fills by bulk copies: two rows of 256 halves a chunk, which two warps add up. Behind stages.cuh.
constexpr int STAGES = 3, COLUMNS = 256, ADDING = 64, LOADS = ADDING;

extern "C" __global__ void __launch_bounds__(ADDING + 32) stream(const half* x, float* y, int chunks) {
  __shared__ __align__(16) half rows[STAGES][2][COLUMNS];
  __shared__ uint64_t full[STAGES], empty[STAGES];
  x += size_t(blockIdx.x) * chunks * 2 * COLUMNS, y += blockIdx.x * COLUMNS;
  if (threadIdx.x == LOADS) {
    make_barriers(full, STAGES, 1);
    make_barriers(empty, STAGES, ADDING / 32);
    barriers_made();
  }
  __syncthreads();
  Stage<STAGES> stage;
  if (threadIdx.x == LOADS) {
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, stage.next()) {
      wait(empty + stage.number, stage.parity ^ 1);
      arrive_expecting(full + stage.number, 2 * sizeof(half) * COLUMNS);
      for (int row = 0; row < 2; ++row)
        copy_bulk(rows[stage.number][row], x + (chunk * 2 + row) * COLUMNS, sizeof(half) * COLUMNS, full + stage.number);
    }
  } else if (threadIdx.x < ADDING) {
    float sums[4] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < chunks; ++chunk, stage.next()) {
      wait(full + stage.number, stage.parity);
      for (int k = 0; k < 4; ++k)
        for (int row = 0; row < 2; ++row) sums[k] += __half2float(rows[stage.number][row][threadIdx.x * 4 + k]);
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(empty + stage.number);
    }
    for (int k = 0; k < 4; ++k) y[threadIdx.x * 4 + k] = sums[k];
  }
}
