// 1x1 convolution, depthwise 3x3, 1x1 convolution (+ a map) in one kernel; what lies between stays in shared memory.
//
// A block computes TILE_H x TILE_W pixels of one image, all channels. Expanded channels go through in blocks of BLOCK:
//
//   image with halo (once) -> expand: mma, bias, activation, 0 outside the image -> depthwise: floats, bias, activation
//                          -> project: mma into registers, which add up over the blocks
constexpr int IN = @IN@, OUT = @OUT@, BLOCK = @BLOCK@, STRIDE = @STRIDE@, TILE_H = @TILE_H@, TILE_W = @TILE_W@;
constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int DEPTH = (IN + 15) / 16 * 16;                                     // of the first product, zeros behind IN
constexpr int HALO_H = (TILE_H - 1) * STRIDE + 3, HALO_W = (TILE_W - 1) * STRIDE + 3, HALO = HALO_H * HALO_W;
constexpr int ROWS = (HALO + 15) / 16 * 16, PIXELS = TILE_H * TILE_W;
constexpr int X_PITCH = DEPTH + 8, E_PITCH = BLOCK + 8;                        // rows fall on different banks
constexpr int N_TILES = OUT / 8, M_TILES = PIXELS / 16, SPLIT = WARPS / M_TILES, N_EACH = (N_TILES + SPLIT - 1) / SPLIT;
static_assert(IN % 8 == 0 && OUT % 8 == 0 && BLOCK % 16 == 0 && PIXELS % 16 == 0 && WARPS % M_TILES == 0, "");

struct Shared {
  half x[ROWS * X_PITCH];
  half expand[BLOCK * X_PITCH];
  half project[OUT * E_PITCH];
  half expanded[ROWS * E_PITCH];
  half filtered[PIXELS * E_PITCH];
  half expand_bias[BLOCK], depthwise_bias[BLOCK];
  half depthwise[BLOCK * 9];
};

static_assert(sizeof(Shared) == @SHARED@, "what the launch asks for");

__device__ __forceinline__ float after_expand(float v) {
  @AFTER_EXPAND@
  return v;
}
__device__ __forceinline__ float after_depthwise(float v) {
  @AFTER_DEPTHWISE@
  return v;
}
__device__ __forceinline__ float before_sum(float v) {
  @BEFORE_SUM@
  return v;
}
__device__ __forceinline__ float after_sum(float v) {
  @AFTER_SUM@
  return v;
}

// Rows of `length` halves, a multiple of 8, `from_pitch` apart, into rows TO_PITCH apart; zeros up to `room`.
template <int TO_PITCH>
__device__ __forceinline__ void copy_rows(half* to, const half* from, int rows, int length, int room, int from_pitch) {
  const int each = room / 8;
  for (int i = threadIdx.x; i < rows * each; i += THREADS) {
    const int row = i / each, at = i % each * 8;
    if (at < length)
      copy_async(to + row * TO_PITCH + at, from + size_t(row) * from_pitch + at);
    else
      *reinterpret_cast<uint4*>(to + row * TO_PITCH + at) = make_uint4(0, 0, 0, 0);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    inverted_residual(const half* __restrict__ x, const half* __restrict__ expand, const half* __restrict__ expand_bias,
                      const half* __restrict__ depthwise, const half* __restrict__ depthwise_bias,
                      const half* __restrict__ project, const half* __restrict__ project_bias,
                      const half* __restrict__ source, half* __restrict__ y, int height, int width, int out_height,
                      int out_width, int pad_y, int pad_x, int channels) {
  extern __shared__ __align__(128) unsigned char storage[];
  Shared& s = *reinterpret_cast<Shared*>(storage);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int first_y = blockIdx.y * TILE_H * STRIDE - pad_y, first_x = blockIdx.x * TILE_W * STRIDE - pad_x;
  const half* image = x + size_t(blockIdx.z) * height * width * IN;

  // The image with its halo; rows of pixels that do not exist are zeros.
  for (int i = threadIdx.x; i < ROWS * (DEPTH / 8); i += THREADS) {
    const int pixel = i / (DEPTH / 8), at = i % (DEPTH / 8) * 8;
    const int row = first_y + pixel / HALO_W, column = first_x + pixel % HALO_W;
    half* to = s.x + pixel * X_PITCH + at;
    if (pixel < HALO && at < IN && row >= 0 && row < height && column >= 0 && column < width)
      copy_async(to, image + (size_t(row) * width + column) * IN + at);
    else
      *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
  }

  float sums[N_EACH][4] = {};
  const int m_tile = warp % M_TILES, n_first = warp / M_TILES * N_EACH;

  for (int block = 0; block < channels; block += BLOCK) {
    copy_rows<X_PITCH>(s.expand, expand + size_t(block) * IN, BLOCK, IN, DEPTH, IN);
    copy_rows<E_PITCH>(s.project, project + block, OUT, BLOCK, BLOCK, channels);
    for (int i = threadIdx.x; i < BLOCK * 9; i += THREADS) s.depthwise[i] = depthwise[block * 9 + i];
    for (int i = threadIdx.x; i < BLOCK; i += THREADS) {
      s.expand_bias[i] = expand_bias[block + i];
      s.depthwise_bias[i] = depthwise_bias[block + i];
    }
    copies_done();
    __syncthreads();

    // Expand: sixteen pixels a warp, all channels of the block.
    for (int m = warp; m < ROWS / 16; m += WARPS) {
      float c[BLOCK / 8][4] = {};
#pragma unroll
      for (int k = 0; k < DEPTH; k += 16) {
        uint32_t a[4];
        load_rows<X_PITCH>(a, s.x, m * 16, k);
#pragma unroll
        for (int n = 0; n < BLOCK / 8; ++n) {
          uint32_t b[2];
          load_columns<X_PITCH>(b, s.expand, n * 8, k);
          multiply_add(c[n], a, b);
        }
      }
#pragma unroll
      for (int half_tile = 0; half_tile < 2; ++half_tile) {
        const int pixel = m * 16 + half_tile * 8 + lane / 4;
        const int row = first_y + pixel / HALO_W, column = first_x + pixel % HALO_W;
        const bool inside = pixel < HALO && row >= 0 && row < height && column >= 0 && column < width;
#pragma unroll
        for (int n = 0; n < BLOCK / 8; ++n) {
          const int channel = n * 8 + lane % 4 * 2;
          const float low = after_expand(c[n][2 * half_tile] + __half2float(s.expand_bias[channel]));
          const float high = after_expand(c[n][2 * half_tile + 1] + __half2float(s.expand_bias[channel + 1]));
          *reinterpret_cast<half2*>(s.expanded + pixel * E_PITCH + channel) =
              inside ? __floats2half2_rn(low, high) : __floats2half2_rn(0.f, 0.f);
        }
      }
    }
    __syncthreads();

    // Depthwise: two channels along a row of pixels a thread; nine values and their filters stay in registers.
    for (int i = threadIdx.x; i < TILE_H * (BLOCK / 2); i += THREADS) {
      const int row = i / (BLOCK / 2), channel = i % (BLOCK / 2) * 2;
      const half* from = s.expanded + row * STRIDE * HALO_W * E_PITCH + channel;
      half* to = s.filtered + row * TILE_W * E_PITCH + channel;
      const float2 bias = __half22float2(*reinterpret_cast<const half2*>(s.depthwise_bias + channel));
      float2 filters[9], values[3][3];
#pragma unroll
      for (int tap = 0; tap < 9; ++tap)
        filters[tap] =
            make_float2(__half2float(s.depthwise[channel * 9 + tap]), __half2float(s.depthwise[channel * 9 + 9 + tap]));
#pragma unroll
      for (int column = 0; column < TILE_W; ++column) {
#pragma unroll
        for (int x_tap = 0; x_tap < 3; ++x_tap)
#pragma unroll
          for (int y_tap = 0; y_tap < 3; ++y_tap)
            values[y_tap][x_tap] =
                column && x_tap + STRIDE < 3
                    ? values[y_tap][x_tap + STRIDE]
                    : __half22float2(*reinterpret_cast<const half2*>(
                          from + (y_tap * HALO_W + column * STRIDE + x_tap) * E_PITCH));
        float2 sum = bias;
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
          const float2 value = values[tap / 3][tap % 3];
          sum = make_float2(fmaf(value.x, filters[tap].x, sum.x), fmaf(value.y, filters[tap].y, sum.y));
        }
        *reinterpret_cast<half2*>(to + column * E_PITCH) =
            __floats2half2_rn(after_depthwise(sum.x), after_depthwise(sum.y));
      }
    }
    __syncthreads();

    // Project: sums stay in registers.
#pragma unroll
    for (int k = 0; k < BLOCK; k += 16) {
      uint32_t a[4];
      load_rows<E_PITCH>(a, s.filtered, m_tile * 16, k);
#pragma unroll
      for (int n = 0; n < N_EACH; ++n) {
        if (n_first + n >= N_TILES) continue;
        uint32_t b[2];
        load_columns<E_PITCH>(b, s.project, (n_first + n) * 8, k);
        multiply_add(sums[n], a, b);
      }
    }
    __syncthreads();
  }

  // Two channels at a time.
#pragma unroll
  for (int half_tile = 0; half_tile < 2; ++half_tile) {
    const int pixel = m_tile * 16 + half_tile * 8 + lane / 4;
    const int row = blockIdx.y * TILE_H + pixel / TILE_W, column = blockIdx.x * TILE_W + pixel % TILE_W;
    if (row >= out_height || column >= out_width) continue;
    const size_t at = ((size_t(blockIdx.z) * out_height + row) * out_width + column) * OUT;
#pragma unroll
    for (int n = 0; n < N_EACH; ++n) {
      if (n_first + n >= N_TILES) continue;
      const int channel = (n_first + n) * 8 + lane % 4 * 2;
      float2 value = make_float2(sums[n][2 * half_tile], sums[n][2 * half_tile + 1]);
      const float2 bias = __half22float2(*reinterpret_cast<const half2*>(project_bias + channel));
      value = make_float2(before_sum(value.x + bias.x), before_sum(value.y + bias.y));
      if (@SOURCE@) {
        const float2 added = __half22float2(*reinterpret_cast<const half2*>(source + at + channel));
        value = make_float2(value.x + added.x, value.y + added.y);
      }
      *reinterpret_cast<half2*>(y + at + channel) = __floats2half2_rn(after_sum(value.x), after_sum(value.y));
    }
  }
}
