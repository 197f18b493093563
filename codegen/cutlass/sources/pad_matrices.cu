// Matrices of rows x columns to matrices of more rows and columns, whose columns are a multiple of eight; what is new is
// zero. One thread writes eight neighbours.
extern "C" __global__ void __launch_bounds__(256)
    pad_matrices(const half* __restrict__ x, half* __restrict__ y, int vectors, int rows, int columns, int wanted_rows,
                 int wanted_columns) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= vectors) return;
  const int across = wanted_columns / 8, first = i % across * 8, row = i / across % wanted_rows;
  const size_t from = (size_t(i / across / wanted_rows) * rows + row) * columns;
  float v[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = row < rows && first + k < columns ? __half2float(x[from + first + k]) : 0.f;
  store<8>(y + size_t(i) * 8, v);
}
