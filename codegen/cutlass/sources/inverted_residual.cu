// 1x1 convolution, depthwise 3x3, 1x1 convolution (+ a map) in one kernel; what lies between stays in shared memory. Or
// without the first one: then the depthwise convolution reads the image.
//
// A tile is TILE_H x TILE_W pixels of one image, all channels. Expanded channels go through in blocks of BLOCK:
//
//   image with halo (once) -> expand: mma, bias, activation, 0 outside the image -> depthwise: floats, bias, activation
//                          -> project: mma into registers, which add up over the blocks
//
// Blocks of threads go through tiles, gridDim.x apart. RESIDENT ones keep all weights, others read those of a pass.
constexpr int IN = @IN@, EXPANDED = @EXPANDED@, OUT = @OUT@, BLOCK = @BLOCK@, STRIDE = @STRIDE@, TILE_H = @TILE_H@, TILE_W = @TILE_W@;
constexpr bool EXPAND = @EXPAND@, RESIDENT = @RESIDENT@;
constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int DEPTH = (IN + 15) / 16 * 16;                                     // of the first product, zeros behind IN
constexpr int HALO_H = (TILE_H - 1) * STRIDE + 3, HALO_W = (TILE_W - 1) * STRIDE + 3, HALO = HALO_H * HALO_W;
constexpr int ROWS = (HALO + 15) / 16 * 16, PIXELS = TILE_H * TILE_W;
constexpr int WEIGHTS = RESIDENT ? EXPANDED : BLOCK;                           // channels whose weights are there
constexpr int X_PITCH = DEPTH + 8, E_PITCH = BLOCK + 8, P_PITCH = WEIGHTS + 8;  // rows fall on different banks
constexpr int EXPAND_TILES = 2, PROJECT_TILES = @PROJECT_TILES@;              // sixteens of rows that a warp takes at once
constexpr int N_TILES = OUT / 8, M_TILES = PIXELS / 16, DOWN = M_TILES / PROJECT_TILES, SPLIT = WARPS / DOWN;
constexpr int N_EACH = (N_TILES + SPLIT - 1) / SPLIT;
static_assert(IN % 8 == 0 && OUT % 8 == 0 && BLOCK % 16 == 0 && EXPANDED % BLOCK == 0 && PIXELS % 16 == 0, "");
static_assert(M_TILES % PROJECT_TILES == 0 && WARPS % DOWN == 0 && (EXPAND || IN == EXPANDED), "");

struct Shared {
  half project[OUT * P_PITCH];
  half expanded[ROWS * E_PITCH];
  half filtered[PIXELS * E_PITCH];
  half x[EXPAND ? ROWS * X_PITCH : 8];
  half expand[EXPAND ? WEIGHTS * X_PITCH : 8];
  half expand_bias[WEIGHTS], depthwise_bias[WEIGHTS];
  half depthwise[WEIGHTS * 9];
};

static_assert(sizeof(Shared) == @SHARED@, "what the launch asks for");

@OPERATORS@

template <int N>
struct Count {
  static constexpr int value = N;
};

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

// The right operands of two products, columns first to first + 15, depth k to k + 15.
template <int PITCH>
__device__ __forceinline__ void load_two_columns(uint32_t (&b)[4], const half* matrix, int first, int k) {
  const int lane = threadIdx.x % 32;
  load_matrices(b, matrix + (first + lane / 16 * 8 + lane % 8) * PITCH + k + lane / 8 % 2 * 8);
}

extern "C" __global__ void __launch_bounds__(THREADS, @SHARERS@)
    inverted_residual(const half* __restrict__ x, const half* __restrict__ expand, const half* __restrict__ expand_bias,
                      const half* __restrict__ depthwise, const half* __restrict__ depthwise_bias,
                      const half* __restrict__ project, const half* __restrict__ project_bias,
                      const half* __restrict__ source, half* __restrict__ y, int height, int width, int out_height,
                      int out_width, int pad_y, int pad_x, int tiles) {
  extern __shared__ __align__(128) unsigned char storage[];
  Shared& s = *reinterpret_cast<Shared*>(storage);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int down = (out_height + TILE_H - 1) / TILE_H, across = (out_width + TILE_W - 1) / TILE_W;

  // Weights of WEIGHTS channels from `first` on.
  const auto start_weights = [&](int first) {
    if (EXPAND) copy_rows<X_PITCH>(s.expand, expand + size_t(first) * IN, WEIGHTS, IN, DEPTH, IN);
    copy_rows<P_PITCH>(s.project, project + first, OUT, WEIGHTS, WEIGHTS, EXPANDED);
    for (int i = threadIdx.x; i < WEIGHTS * 9; i += THREADS) s.depthwise[i] = depthwise[first * 9 + i];
    for (int i = threadIdx.x; i < WEIGHTS; i += THREADS) {
      if (EXPAND) s.expand_bias[i] = expand_bias[first + i];
      s.depthwise_bias[i] = depthwise_bias[first + i];
    }
  };
  if (RESIDENT) start_weights(0);

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int tile_x = tile % across, tile_y = tile / across % down, batch = tile / across / down;
    const int first_y = tile_y * TILE_H * STRIDE - pad_y, first_x = tile_x * TILE_W * STRIDE - pad_x;
    const half* image = x + size_t(batch) * height * width * IN;

    // LENGTH channels of the image with its halo; rows of pixels that do not exist, and ROOM behind, are zeros.
    const auto start_image = [&](half* to, int first, auto length, auto room, auto pitch) {
      constexpr int LENGTH = decltype(length)::value, ROOM = decltype(room)::value, PITCH = decltype(pitch)::value;
      for (int i = threadIdx.x; i < ROWS * (ROOM / 8); i += THREADS) {
        const int pixel = i / (ROOM / 8), at = i % (ROOM / 8) * 8;
        const int row = first_y + pixel / HALO_W, column = first_x + pixel % HALO_W;
        if (pixel < HALO && at < LENGTH && row >= 0 && row < height && column >= 0 && column < width)
          copy_async(to + pixel * PITCH + at, image + (size_t(row) * width + column) * IN + first + at);
        else
          *reinterpret_cast<uint4*>(to + pixel * PITCH + at) = make_uint4(0, 0, 0, 0);
      }
    };
    if (EXPAND) start_image(s.x, 0, Count<IN>(), Count<DEPTH>(), Count<X_PITCH>());

    float sums[PROJECT_TILES][N_EACH][4] = {};
    const int m_first = warp % DOWN * PROJECT_TILES, n_first = warp / DOWN * N_EACH;

    for (int block = 0; block < EXPANDED; block += BLOCK) {
      const int at = RESIDENT ? block : 0;  // of the weights that are there
      if (!RESIDENT) start_weights(block);
      if (!EXPAND) start_image(s.expanded, block, Count<BLOCK>(), Count<BLOCK>(), Count<E_PITCH>());
      if (!RESIDENT || !EXPAND || block == 0) {
        copies_done();
        __syncthreads();
      }

      // Expand: twice sixteen pixels a warp, all channels of the block.
      if (EXPAND) {
        for (int m = warp * EXPAND_TILES; m < ROWS / 16; m += WARPS * EXPAND_TILES) {
          float c[EXPAND_TILES][BLOCK / 8][4] = {};
#pragma unroll
          for (int k = 0; k < DEPTH; k += 16) {
            uint32_t a[EXPAND_TILES][4];
#pragma unroll
            for (int i = 0; i < EXPAND_TILES; ++i)
              if (m + i < ROWS / 16) load_rows<X_PITCH>(a[i], s.x, (m + i) * 16, k);
#pragma unroll
            for (int n = 0; n < BLOCK / 8; n += 2) {
              uint32_t b[4];
              load_two_columns<X_PITCH>(b, s.expand, at + n * 8, k);
              const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
              for (int i = 0; i < EXPAND_TILES; ++i)
                if (m + i < ROWS / 16) multiply_add(c[i][n], a[i], low), multiply_add(c[i][n + 1], a[i], high);
            }
          }
#pragma unroll
          for (int i = 0; i < 2 * EXPAND_TILES; ++i) {
            const int pixel = m * 16 + i * 8 + lane / 4;
            if (pixel >= ROWS) continue;
            const int row = first_y + pixel / HALO_W, column = first_x + pixel % HALO_W;
            const bool inside = pixel < HALO && row >= 0 && row < height && column >= 0 && column < width;
#pragma unroll
            for (int n = 0; n < BLOCK / 8; ++n) {
              const int channel = n * 8 + lane % 4 * 2;
              const float2 bias = __half22float2(*reinterpret_cast<const half2*>(s.expand_bias + at + channel));
              const float low = after_expand(c[i / 2][n][i % 2 * 2] + bias.x);
              const float high = after_expand(c[i / 2][n][i % 2 * 2 + 1] + bias.y);
              *reinterpret_cast<half2*>(s.expanded + pixel * E_PITCH + channel) =
                  inside ? __floats2half2_rn(low, high) : __floats2half2_rn(0.f, 0.f);
            }
          }
        }
        __syncthreads();
      }

      // Depthwise: two channels along a row of pixels a thread; nine values and their filters stay in registers.
      for (int i = threadIdx.x; i < TILE_H * (BLOCK / 2); i += THREADS) {
        const int row = i / (BLOCK / 2), channel = i % (BLOCK / 2) * 2;
        const half* from = s.expanded + row * STRIDE * HALO_W * E_PITCH + channel;
        half* to = s.filtered + row * TILE_W * E_PITCH + channel;
        const float2 bias = __half22float2(*reinterpret_cast<const half2*>(s.depthwise_bias + at + channel));
        float2 filters[9], values[3][3];
#pragma unroll
        for (int tap = 0; tap < 9; ++tap)
          filters[tap] = make_float2(__half2float(s.depthwise[(at + channel) * 9 + tap]),
                                     __half2float(s.depthwise[(at + channel + 1) * 9 + tap]));
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
        uint32_t a[PROJECT_TILES][4];
#pragma unroll
        for (int i = 0; i < PROJECT_TILES; ++i) load_rows<E_PITCH>(a[i], s.filtered, (m_first + i) * 16, k);
#pragma unroll
        for (int n = 0; n < N_EACH; ++n) {
          if (n_first + n >= N_TILES) continue;
          uint32_t b[2];
          load_columns<P_PITCH>(b, s.project, (n_first + n) * 8, at + k);
#pragma unroll
          for (int i = 0; i < PROJECT_TILES; ++i) multiply_add(sums[i][n], a[i], b);
        }
      }
      if (!RESIDENT) __syncthreads();
    }

    // Two channels at a time.
#pragma unroll
    for (int i = 0; i < 2 * PROJECT_TILES; ++i) {
      const int pixel = m_first * 16 + i * 8 + lane / 4;
      const int row = tile_y * TILE_H + pixel / TILE_W, column = tile_x * TILE_W + pixel % TILE_W;
      if (row >= out_height || column >= out_width) continue;
      const size_t at = ((size_t(batch) * out_height + row) * out_width + column) * OUT;
#pragma unroll
      for (int n = 0; n < N_EACH; ++n) {
        if (n_first + n >= N_TILES) continue;
        const int channel = (n_first + n) * 8 + lane % 4 * 2;
        float2 value = make_float2(sums[i / 2][n][i % 2 * 2], sums[i / 2][n][i % 2 * 2 + 1]);
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
}
