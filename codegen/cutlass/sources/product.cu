// Products of matrices of any extents on the CUDA cores: a block computes 64 x 64 of one result, 16 deep at a time, a
// thread 4 x 4 of them, 16 apart. Rows of A and B lie one behind the other; matrices of a batch lie `steps_a` and
// `steps_b` elements apart along each axis of the result before the last two.
constexpr int TILE = 64, DEPTH = 16, EACH_WAY = 4;

extern "C" __global__ void __launch_bounds__(256)
    product(half* __restrict__ y, const half* __restrict__ a, const half* __restrict__ b, const half* __restrict__ bias,
            int m, int n, int k, Dims extents, Dims steps_a, Dims steps_b@PARAMETERS@) {
  __shared__ float left[DEPTH][TILE + 1], right[DEPTH][TILE];
  const int thread = threadIdx.x, across = (n - 1) / TILE + 1, down = (m - 1) / TILE + 1;
  const int column = blockIdx.x % across * TILE, row = blockIdx.x / across % down * TILE;
  const int batch = blockIdx.x / across / down;
  const int rows = m - row, columns = n - column;  // that are left, so that no sum exceeds 32 bits
  int rest = batch;
#pragma unroll
  for (int axis = RANK - 3; axis >= 0; --axis) {
    const int i = rest % extents.v[axis];
    rest /= extents.v[axis];
    a += size_t(i) * steps_a.v[axis];
    b += size_t(i) * steps_b.v[axis];
  }
  a += size_t(row) * k;
  b += column;

  float sums[EACH_WAY][EACH_WAY] = {};
  for (int deep = k; deep > 0; deep -= DEPTH, a += DEPTH, b += size_t(DEPTH) * n) {
#pragma unroll
    for (int i = thread; i < TILE * DEPTH; i += 256) {
      const int r = i / DEPTH, c = i % TILE, d_a = i % DEPTH, d_b = i / TILE;
      left[d_a][r] = r < rows && d_a < deep ? __half2float(a[size_t(r) * k + d_a]) : 0.f;
      right[d_b][c] = c < columns && d_b < deep ? __half2float(b[size_t(d_b) * n + c]) : 0.f;
    }
    __syncthreads();
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
#pragma unroll
      for (int i = 0; i < EACH_WAY; ++i) {
#pragma unroll
        for (int j = 0; j < EACH_WAY; ++j) {
          sums[i][j] = fmaf(left[d][thread / 16 + 16 * i], right[d][thread % 16 + 16 * j], sums[i][j]);
        }
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < EACH_WAY; ++i) {
#pragma unroll
    for (int j = 0; j < EACH_WAY; ++j) {
      const int r = thread / 16 + 16 * i, c = thread % 16 + 16 * j;
      if (r >= rows || c >= columns) continue;
      const int place = (batch * m + row + r) * n + column + c;
      int at[RANK];
      unravel<RANK>(place, extents, at);
      float v[V] = {bias ? sums[i][j] + __half2float(bias[column + c]) : sums[i][j]};
      @EPILOGUE@
      store<V>(y + place, v);
    }
  }
}
