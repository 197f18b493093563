// One thread computes V neighbours of the output along its last axis.
extern "C" __global__ void __launch_bounds__(256)
    @NAME@(half* __restrict__ y, int vectors, Dims extents@PARAMETERS@) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= vectors) return;
  int at[RANK];
  unravel<RANK>(i * V, extents, at);
  float v[V];
  @ANCHOR@
  @EPILOGUE@
  store<V>(y + @ELEMENT@, v);
}
