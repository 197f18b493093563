// Tiles of 32 x 32 elements through shared memory, so that both what is read and what is written are runs of neighbours.
// `columns` are neighbours of the input, `rows` those of the output; other axes are counted by the block.
extern "C" __global__ void __launch_bounds__(256)
    @NAME@(half* __restrict__ y, const half* __restrict__ x, int rows, int columns, int row_stride, int column_stride,
           Dims others, Dims read, Dims written, Dims extents@PARAMETERS@) {
  __shared__ half tile[32][33];
  const int across = (columns + 31) / 32, down = (rows + 31) / 32;
  const int first_column = blockIdx.x % across * 32, first_row = blockIdx.x / across % down * 32;
  int where[4];
  unravel<4>(blockIdx.x / across / down, others, where);
  const half* from = x + offset<4>(where, read);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int r = warp; r < 32; r += 8) {
    const int row = first_row + r, column = first_column + lane;
    if (row < rows && column < columns) tile[r][lane] = from[row * row_stride + column];
  }
  __syncthreads();
  for (int c = warp; c < 32; c += 8) {
    const int row = first_row + lane, column = first_column + c;
    if (row >= rows || column >= columns) continue;
    const int element = offset<4>(where, written) + column * column_stride + row;
    int at[RANK];
    unravel<RANK>(element, extents, at);
    float v[V] = {__half2float(tile[lane][c])};
    @EPILOGUE@
    store<V>(y + element, v);
  }
}
