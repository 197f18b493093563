// What an operator makes of lines, and the element-wise operators behind it, with one rounding at the end.
extern "C" __global__ void __launch_bounds__(THREADS)
    @NAME@(half* __restrict__ y, const half* __restrict__ x, Lines lines, Dims extents@PARAMETERS@) {
  const Team team(x, lines);
  const auto stored = [&](auto& v, int first) {
    constexpr int V = sizeof(v) / sizeof(float);
    int at[RANK];
    unravel<RANK>(first, extents, at);
    @EPILOGUE@
    store<V>(y + first, v);
  };
  @BODY@
}
