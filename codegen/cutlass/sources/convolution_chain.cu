// Two or three convolutions, 1x1 or 3x3, in one kernel, by mma; what lies between stays in shared memory, as halves.
//
// A block computes TILE_H x TILE_W pixels of one image, all channels. Layer by layer, from the halo inwards:
//
//   image, DEPTH channels at a time -> mma over taps and channels -> bias, activation, 0 outside the image -> planes
//   planes of the layer before      -> ...                       -> bias, activation, (+ a map), activation -> y
//
// Weights of all layers are one stream of steps, STAGES of which are on their way, across the ends of layers.
constexpr int LAYERS = @LAYERS@, TILE_H = @TILE_H@, TILE_W = @TILE_W@, WARPS = @WARPS@, DEPTH = @DEPTH@, STAGES = @STAGES@;
constexpr int THREADS = 32 * WARPS;
constexpr int CHANNELS[] = {@CHANNELS@}, KERNELS[] = {@KERNELS@}, STRIDES[] = {@STRIDES@};
constexpr int COLUMNS[] = {@COLUMNS@};  // output channels at once, by layer
constexpr int DOWN[] = {@DOWN@};        // warps that share the rows, by layer

__host__ __device__ constexpr int extent(int layer, int tile) {
  return layer == LAYERS - 1 ? tile : (extent(layer + 1, tile) - 1) * STRIDES[layer + 1] + KERNELS[layer + 1];
}

template <int I>
struct Layer {
  static constexpr bool LAST = I == LAYERS - 1;
  static constexpr int KERNEL = KERNELS[I], TAPS = KERNEL * KERNEL, STRIDE = STRIDES[I], WARPS_DOWN = DOWN[I];
  static constexpr int H = extent(I, TILE_H), W = extent(I, TILE_W), PIXELS = H * W;
  // Of what it reads. A 1x1 at the begin gathers the pixels that it needs, so that they are neighbours.
  static constexpr int STEP = I == 0 && KERNEL == 1 ? 1 : STRIDE;
  static constexpr int IN_H = (H - 1) * STEP + KERNEL, IN_W = (W - 1) * STEP + KERNEL, IN_PIXELS = IN_H * IN_W;
  static constexpr int PITCH = I == 0 ? copied_pitch(IN_PIXELS, DEPTH) : IN_PIXELS;
  static constexpr int IN = CHANNELS[I], OUT = CHANNELS[I + 1], BLOCK = COLUMNS[I];
  static constexpr int CHUNKS = rounded_up(IN, DEPTH) / DEPTH;
  static constexpr int BLOCKS = rounded_up(LAST ? OUT : rounded_up(OUT, DEPTH), BLOCK) / BLOCK;
  static constexpr int STEPS = BLOCKS * CHUNKS * TAPS;
  static constexpr int M_TILES = rounded_up(PIXELS, 16) / 16, M_EACH = (M_TILES + WARPS_DOWN - 1) / WARPS_DOWN;
  static constexpr int ACROSS = WARPS / WARPS_DOWN, N_EACH = BLOCK / ACROSS / 8;
  static_assert(IN % 8 == 0 && OUT % 8 == 0 && WARPS % WARPS_DOWN == 0 && BLOCK % (16 * ACROSS) == 0, "");

  // Where a column of what it reads lies: every second one first, where it reads every second one.
  static __device__ __forceinline__ int column(int x) { return STEP == 1 ? x : x % 2 * ((IN_W + 1) / 2) + x / 2; }
  // From the row of a pixel's first tap to that of another.
  static __device__ __forceinline__ int tap(int y, int x) { return y * IN_W + column(x); }
};

template <int I>
__host__ __device__ constexpr int steps_before() {
  if constexpr (I == 0)
    return 0;
  else
    return steps_before<I - 1>() + Layer<I - 1>::STEPS;
}
__host__ __device__ constexpr int widest(int layer) {
  return layer == 0 ? COLUMNS[0] : COLUMNS[layer] > widest(layer - 1) ? COLUMNS[layer] : widest(layer - 1);
}
constexpr int WEIGHTS_PITCH = copied_pitch(widest(LAYERS - 1), DEPTH), WEIGHTS = WEIGHTS_PITCH * DEPTH;
constexpr int IMAGES = Layer<0>::TAPS == 1 ? STAGES : 2, IMAGE = Layer<0>::PITCH * DEPTH;
constexpr int MIDDLE = Layer<1>::PITCH * Layer<1>::CHUNKS * DEPTH;
constexpr int LATE = LAYERS == 3 ? Layer<LAYERS - 1>::PITCH * Layer<LAYERS - 1>::CHUNKS * DEPTH : 0;
static_assert(STAGES >= 2 && STAGES <= 10, "the image's chunks are in two buffers");

struct Shared {
  half weights[STAGES * WEIGHTS];
  half middle[MIDDLE];                                             // what the first layer makes
  half image[IMAGES * IMAGE > LATE ? IMAGES * IMAGE : LATE];       // chunks of the image, then what the second makes
};
static_assert(sizeof(Shared) == @SHARED@, "what the launch asks for");

template <int I>
__device__ __forceinline__ float activated(float v) {
  if constexpr (I == 0) {
    @AFTER_FIRST@
  } else if constexpr (I == 1) {
    @AFTER_SECOND@
  } else {
    @AFTER_THIRD@
  }
  return v;
}
__device__ __forceinline__ float after_sum(float v) {
  @AFTER_SUM@
  return v;
}

// What all threads know. Extents of the image, and of what each layer makes behind it.
struct Chain {
  const half* x;
  const half* weights[LAYERS];
  const half* bias[LAYERS];
  const half* source;
  half* y;
  int height[LAYERS + 1], width[LAYERS + 1];
  int first_y[LAYERS + 1], first_x[LAYERS + 1];  // of this block's tile, with its halo
};

// From the tile that layer I makes to those that it and the layers before it read.
template <int I>
__device__ __forceinline__ void place_tiles(Chain& chain, const Dims& pads_y, const Dims& pads_x) {
  chain.first_y[I] = chain.first_y[I + 1] * Layer<I>::STRIDE - pads_y.v[I];
  chain.first_x[I] = chain.first_x[I + 1] * Layer<I>::STRIDE - pads_x.v[I];
  if constexpr (I > 0) place_tiles<I - 1>(chain, pads_y, pads_x);
}

// Starts the copies of a step, counted from the layer's first one; those beyond its last are of the next layer.
template <int I>
__device__ __forceinline__ void start_copies(Shared& s, const Chain& chain, int step) {
  if constexpr (I < LAYERS) {
    using L = Layer<I>;
    if (step >= L::STEPS) return start_copies<I + 1>(s, chain, step - L::STEPS);
    const int tap = step % L::TAPS, chunk = step / L::TAPS % L::CHUNKS, block = step / (L::TAPS * L::CHUNKS);
    const int column = block * L::BLOCK, k = chunk * DEPTH;
    half* weights = s.weights + (steps_before<I>() + step) % STAGES * WEIGHTS;
    const half* from = chain.weights[I] + (size_t(column) * L::TAPS + tap) * L::IN + k;
    copy_into_planes<WEIGHTS_PITCH, L::BLOCK, DEPTH, THREADS>(weights, from, L::TAPS * L::IN, L::OUT - column, L::IN - k);
    if (I == 0 && tap == 0) {
      half* image = s.image + step / L::TAPS % IMAGES * IMAGE;
      constexpr int UNITS = DEPTH / 8, GATHER = L::STRIDE / L::STEP;
      const int unit = threadIdx.x % UNITS;
      const half* from = chain.x + k + unit * 8;
#pragma unroll 1
      for (int pixel = threadIdx.x / UNITS; pixel < L::IN_PIXELS; pixel += THREADS / UNITS) {
        const int y = pixel / L::IN_W, x = pixel % L::IN_W;
        const int row = chain.first_y[0] + y * GATHER, column = chain.first_x[0] + x * GATHER;
        const bool inside = row >= 0 && row < chain.height[0] && column >= 0 && column < chain.width[0];
        copy_or_zero(image + (unit * L::PITCH + y * L::IN_W + L::column(x)) * 8,
                     from + (row * chain.width[0] + column) * ptrdiff_t(L::IN), inside && k + unit * 8 < L::IN);
      }
    }
  }
}

// Two channels of a pixel of layer I to where they are read, shared or global memory.
template <int I>
__device__ __forceinline__ void finish(Shared& s, const Chain& chain, int pixel, int channel, float2 value) {
  using L = Layer<I>;
  const int y = pixel / L::W, x = pixel % L::W, row = chain.first_y[I + 1] + y, column = chain.first_x[I + 1] + x;
  const bool inside = pixel < L::PIXELS && row >= 0 && row < chain.height[I + 1] && column >= 0 && column < chain.width[I + 1];
  if (channel < L::OUT && inside) {
    const float2 bias = __half22float2(*reinterpret_cast<const half2*>(chain.bias[I] + channel));
    value = make_float2(activated<I>(value.x + bias.x), activated<I>(value.y + bias.y));
  }
  if constexpr (!L::LAST) {
    using Next = Layer<I + 1>;
    if (channel >= L::OUT || !inside) value = make_float2(0.f, 0.f);
    half* to = I == 0 ? s.middle : s.image;
    if (pixel < L::PIXELS && channel < Next::CHUNKS * DEPTH)
      store_pair<Next::PITCH>(to, y * Next::IN_W + Next::column(x), channel, value);
  } else if (inside && channel < L::OUT) {
    const size_t at = (size_t(row) * chain.width[I + 1] + column) * L::OUT + channel;
    if (@SOURCE@) {
      const float2 added = __half22float2(*reinterpret_cast<const half2*>(chain.source + at));
      value = make_float2(value.x + added.x, value.y + added.y);
    }
    *reinterpret_cast<half2*>(chain.y + at) = __floats2half2_rn(after_sum(value.x), after_sum(value.y));
  }
}

template <int I>
__device__ __forceinline__ void layer(Shared& s, const Chain& chain) {
  using L = Layer<I>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int down = warp % L::WARPS_DOWN, first = warp / L::WARPS_DOWN * L::N_EACH * 8;
  const int active = (L::M_TILES - down + L::WARPS_DOWN - 1) / L::WARPS_DOWN;
  int rows[L::M_EACH];
#pragma unroll
  for (int m = 0; m < L::M_EACH; ++m) {
    const int pixel = (down + m * L::WARPS_DOWN) * 16 + lane % 16;
    rows[m] = pixel < L::PIXELS ? pixel / L::W * L::STEP * L::IN_W + pixel % L::W : 0;
  }
#pragma unroll 1
  for (int block = 0; block < L::BLOCKS; ++block) {
    float sums[L::M_EACH][L::N_EACH][4] = {};
#pragma unroll 1
    for (int each = 0; each < L::CHUNKS * L::TAPS; ++each) {
      const int step = block * L::CHUNKS * L::TAPS + each, tap = each % L::TAPS, chunk = each / L::TAPS;
      copies_wait<STAGES - 2>();
      __syncthreads();
      start_copies<I>(s, chain, step + STAGES - 1);
      copies_end();
      const half* from = I == 0   ? s.image + step / L::TAPS % IMAGES * IMAGE
                         : I == 1 ? s.middle + chunk * DEPTH * L::PITCH
                                  : s.image + chunk * DEPTH * L::PITCH;
      multiply_planes<L::M_EACH, L::N_EACH, DEPTH, L::PITCH, WEIGHTS_PITCH>(
          sums, from + L::tap(tap / L::KERNEL, tap % L::KERNEL) * 8, rows,
          s.weights + (steps_before<I>() + step) % STAGES * WEIGHTS, first, active);
    }
    int own = lane;
    asm volatile("" : "+r"(own));  // no place of a result is kept in registers through the products
#pragma unroll
    for (int m = 0; m < L::M_EACH; ++m)
#pragma unroll
      for (int half_tile = 0; half_tile < 2; ++half_tile)
#pragma unroll
        for (int n = 0; n < L::N_EACH; ++n)
          if (m < active)
            finish<I>(s, chain, (down + m * L::WARPS_DOWN) * 16 + half_tile * 8 + own / 4,
                      block * L::BLOCK + first + n * 8 + own % 4 * 2,
                      make_float2(sums[m][n][2 * half_tile], sums[m][n][2 * half_tile + 1]));
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, @SHARERS@)
    convolution_chain(const half* __restrict__ x, @PARAMETERS@, const half* __restrict__ source, half* __restrict__ y,
                      Dims heights, Dims widths, Dims pads_y, Dims pads_x) {
  extern __shared__ __align__(128) unsigned char storage[];
  Shared& s = *reinterpret_cast<Shared*>(storage);
  Chain chain = {x, {@WEIGHTS@}, {@BIASES@}, source, y};
#pragma unroll
  for (int i = 0; i <= LAYERS; ++i) chain.height[i] = heights.v[i], chain.width[i] = widths.v[i];
  chain.first_y[LAYERS] = blockIdx.y * TILE_H, chain.first_x[LAYERS] = blockIdx.x * TILE_W;
  place_tiles<LAYERS - 1>(chain, pads_y, pads_x);
  const size_t made = size_t(blockIdx.z) * chain.height[LAYERS] * chain.width[LAYERS] * Layer<LAYERS - 1>::OUT;
  chain.x += size_t(blockIdx.z) * chain.height[0] * chain.width[0] * Layer<0>::IN;
  chain.source += made, chain.y += made;
#pragma unroll
  for (int step = 0; step < STAGES - 1; ++step) {
    start_copies<0>(s, chain, step);
    copies_end();
  }
  layer<0>(s, chain);
  layer<1>(s, chain);
  if constexpr (LAYERS == 3) layer<2>(s, chain);
}
