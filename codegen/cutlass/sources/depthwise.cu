// Depthwise convolution, channels last: a thread computes S neighbours of a row of the output in V channels. All that is
// known of the layer but the number of images is constant, so that no tap has a branch.
//
// An element of the input is read once for all outputs of the strip: column p of the strip's part of a row meets tap t of
// output s where p = s STRIDE_X + t DILATION_X. Blocks have a few channels in all of several rows, for the sake of the L1.
constexpr int ACROSS = (OUT_WIDTH + S - 1) / S, CHUNKS = CHANNELS / V / NEAR;
constexpr int COLUMNS = (S - 1) * STRIDE_X + (TAPS_X - 1) * DILATION_X + 1;
constexpr bool EDGES = PAD_X > 0 || (ACROSS * S - 1) * STRIDE_X - PAD_X + (TAPS_X - 1) * DILATION_X >= WIDTH;
constexpr bool ROWS_INSIDE = PAD_Y == 0 && (OUT_HEIGHT - 1) * STRIDE_Y + (TAPS_Y - 1) * DILATION_Y < HEIGHT;

// Taps of a row of the window, from `line`, where column 0 lies: of the first column `first` of the image on.
__device__ __forceinline__ void add_row(float (&sum)[S][V], const half* line, const half* taps, int first, bool inside) {
  float u[TAPS_X][V];
#pragma unroll
  for (int p = 0; p < COLUMNS; ++p) {
    if (p % DILATION_X == 0 && p / DILATION_X < TAPS_X) load(u[p / DILATION_X], taps + p / DILATION_X * CHANNELS);
    bool wanted = false;
#pragma unroll
    for (int s = 0; s < S; ++s) {
      const int from = p - s * STRIDE_X;
      wanted |= from >= 0 && from % DILATION_X == 0 && from / DILATION_X < TAPS_X;
    }
    if (!wanted) continue;
    float t[V];
    load_inside(t, line + p * CHANNELS, inside && (!EDGES || unsigned(first + p) < WIDTH));
#pragma unroll
    for (int s = 0; s < S; ++s) {
      const int from = p - s * STRIDE_X;
      if (from >= 0 && from % DILATION_X == 0 && from / DILATION_X < TAPS_X)
        EACH sum[s][k] = fmaf(t[k], u[from / DILATION_X][k], sum[s][k]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    @NAME@(half* __restrict__ y, int strips, const half* __restrict__ x, const half* __restrict__ weights@PARAMETERS@) {
  int i = blockIdx.x * THREADS + threadIdx.x;
  if (i >= strips) return;
  int channel = i % NEAR * V;
  i /= NEAR;
  const int left = i % ACROSS * S;
  i /= ACROSS;
  const int row = i % OUT_HEIGHT;
  i /= OUT_HEIGHT;
  channel += i % CHUNKS * (NEAR * V);
  const int image = i / CHUNKS;

  float sum[S][V];
  @START@
  const int top = row * STRIDE_Y - PAD_Y, first = left * STRIDE_X - PAD_X;
  const half* corner = x + (int64_t(image) * HEIGHT + top) * (WIDTH * CHANNELS) + first * CHANNELS + channel;
  const half* taps = weights + channel;
  if constexpr (UNROLLED) {
#pragma unroll
    for (int r = 0; r < TAPS_Y; ++r)
      add_row(sum, corner + r * (DILATION_Y * WIDTH * CHANNELS), taps + r * (TAPS_X * CHANNELS), first,
              ROWS_INSIDE || unsigned(top + r * DILATION_Y) < HEIGHT);
  } else {
#pragma unroll 1
    for (int r = 0; r < TAPS_Y; ++r)
      if (ROWS_INSIDE || unsigned(top + r * DILATION_Y) < HEIGHT)
        add_row(sum, corner + r * (DILATION_Y * WIDTH * CHANNELS), taps + r * (TAPS_X * CHANNELS), first, true);
  }

#pragma unroll
  for (int s = 0; s < S; ++s) {
    const int column = left + s;
    if (OUT_WIDTH % S && column >= OUT_WIDTH) break;
    float(&v)[V] = sum[s];
    const int at[RANK] = {@AT@};
    @EPILOGUE@
    store_whole(y + ((size_t(image) * OUT_HEIGHT + row) * OUT_WIDTH + column) * CHANNELS + channel, v);
  }
}
