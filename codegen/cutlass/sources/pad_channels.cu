// Pixels of CHANNELS channels to pixels of PADDED, the others zero: one thread copies eight pixels, 16 bytes at a time.
constexpr int CHANNELS = @CHANNELS@, PADDED = @PADDED@, PIXELS = 8;

extern "C" __global__ void __launch_bounds__(256)
    pad_channels(const half* __restrict__ x, half* __restrict__ y, int pixels) {
  const int first = (blockIdx.x * 256 + threadIdx.x) * PIXELS;
  if (first >= pixels) return;
  x += size_t(first) * CHANNELS, y += size_t(first) * PADDED;
  __align__(16) half from[PIXELS * CHANNELS], to[PIXELS * PADDED];
  const int there = pixels - first < PIXELS ? pixels - first : PIXELS;
  if (there == PIXELS) {
#pragma unroll
    for (int k = 0; k < CHANNELS; ++k) reinterpret_cast<uint4*>(from)[k] = reinterpret_cast<const uint4*>(x)[k];
  } else {
#pragma unroll
    for (int k = 0; k < PIXELS * CHANNELS; ++k) from[k] = k < there * CHANNELS ? x[k] : __float2half(0.f);
  }
#pragma unroll
  for (int k = 0; k < PIXELS * PADDED; ++k)
    to[k] = k % PADDED < CHANNELS ? from[k / PADDED * CHANNELS + k % PADDED] : __float2half(0.f);
  if (there == PIXELS) {
#pragma unroll
    for (int k = 0; k < PADDED; ++k) reinterpret_cast<uint4*>(y)[k] = reinterpret_cast<const uint4*>(to)[k];
  } else {
#pragma unroll
    for (int k = 0; k < PIXELS * PADDED; ++k)
      if (k < there * PADDED) y[k] = to[k];
  }
}
