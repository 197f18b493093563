// Pixels of CHANNELS channels, fewer than PADDED, to pixels of PADDED, the other channels zero; each row of `width` pixels
// with `left` zero pixels in front of it, and behind it as many as make it `wanted`. One thread writes one pixel.
constexpr int CHANNELS = @CHANNELS@, PADDED = @PADDED@;

extern "C" __global__ void __launch_bounds__(256)
    pad_pixels(const half* __restrict__ x, half* __restrict__ y, int pixels, int width, int wanted, int left) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= pixels) return;
  const int row = i / wanted, column = i % wanted - left;
  float v[PADDED] = {};
  if (column >= 0 && column < width) {
    const half* from = x + (size_t(row) * width + column) * CHANNELS;
#pragma unroll
    for (int k = 0; k < CHANNELS; ++k) v[k] = __half2float(from[k]);
  }
  half2 pairs[PADDED / 2];
#pragma unroll
  for (int k = 0; k < PADDED / 2; ++k) pairs[k] = __floats2half2_rn(v[2 * k], v[2 * k + 1]);
  if constexpr (PADDED == 4)
    *reinterpret_cast<uint2*>(y + size_t(i) * PADDED) = *reinterpret_cast<const uint2*>(pairs);
  else
    *reinterpret_cast<uint4*>(y + size_t(i) * PADDED) = *reinterpret_cast<const uint4*>(pairs);
}
