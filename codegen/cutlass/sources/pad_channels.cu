// Pixels of some channels to pixels of more, the others zero; one thread writes eight.
extern "C" __global__ void __launch_bounds__(256)
    pad_channels(const half* __restrict__ x, half* __restrict__ y, int vectors, int channels, int padded) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= vectors) return;
  const int pixel = i / (padded / 8), first = i % (padded / 8) * 8;
  float v[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) v[k] = first + k < channels ? __half2float(x[size_t(pixel) * channels + first + k]) : 0.f;
  store<8>(y + size_t(i) * 8, v);
}
