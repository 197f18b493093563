// Sums of the parts of a result, which lie one after the other as floats: in their order, so always with the same bits.
// A thread sums eight neighbouring filters of a row. Behind wgmma_layer.cu, whose kernel leaves the parts.
constexpr int SUMMING = @SUMMING@;

extern "C" __global__ void __launch_bounds__(SUMMING)
    sum_parts(const float4* __restrict__ parts, const half* __restrict__ source, half* __restrict__ y, int units) {
  const int unit = blockIdx.x * SUMMING + threadIdx.x;
  if (unit >= units) return;
  float sums[8] = {}, added[8];
  if (@SOURCE@) load<8>(added, source + 8 * size_t(unit));
#pragma unroll 8
  for (int part = 0; part < PARTS; ++part) {
    const float4* from = parts + 2 * (size_t(part) * units + unit);
    const float4 low = from[0], high = from[1];
    sums[0] += low.x, sums[1] += low.y, sums[2] += low.z, sums[3] += low.w;
    sums[4] += high.x, sums[5] += high.y, sums[6] += high.z, sums[7] += high.w;
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    sums[k] = before_sum(sums[k]);
    if (@SOURCE@) sums[k] += added[k];
    sums[k] = after_sum(sums[k]);
  }
  store<8>(y + 8 * size_t(unit), sums);
}
