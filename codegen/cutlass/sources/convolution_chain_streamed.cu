// Two or three convolutions, 1x1 or 3x3, in one kernel, by wgmma; what lies between stays in shared memory, as halves.
//
// A block computes TILE_H x TILE_W pixels of one image, all channels. Layer by layer, from the halo inwards:
//
//   image, DEPTH channels at a time -> wgmma over taps and channels -> bias, activation, 0 outside the image -> planes
//   planes of the layer before      -> ...                          -> bias, activation, (+ a map), activation -> y
//
// One thread streams the weights of all layers through STAGES stages: a step's weights lie in memory as in a stage. Some
// warps copy the image. The others, in groups of four, only wait for what is there, multiply, and hand the stage back.
//
// Both operands are read where they lie. Rows of the left one are neighbours in memory, so a row of pixels of the result
// has as many as the one of what is read has (PHASE_W); those beyond the tile are computed and left out.
constexpr int LAYERS = @LAYERS@, TILE_H = @TILE_H@, TILE_W = @TILE_W@, DEPTH = @DEPTH@, STAGES = @STAGES@;
constexpr int IMAGES = @IMAGES@;                       // stages of the image
constexpr int WARPS = @WARPS@, LOADERS = @LOADERS@;  // that multiply; that copy the image
constexpr int MULTIPLIERS = 32 * WARPS, LOADING = 32 * LOADERS, THREADS = MULTIPLIERS + LOADING + 32;
constexpr int CHANNELS[] = {@CHANNELS@}, KERNELS[] = {@KERNELS@}, STRIDES[] = {@STRIDES@};
constexpr int COLUMNS[] = {@COLUMNS@};  // output channels at once, by layer
constexpr int DOWN[] = {@DOWN@};        // warps that share the rows, by layer
constexpr int UNITS = DEPTH / 8, AHEAD = 4;  // pixels that a thread copies a part of at once

__host__ __device__ constexpr int extent(int layer, int tile) {
  return layer == LAYERS - 1 ? tile : (extent(layer + 1, tile) - 1) * STRIDES[layer + 1] + KERNELS[layer + 1];
}
__host__ __device__ constexpr int larger_of(int a, int b) { return a > b ? a : b; }

// Bytes to a pixel that is not there: more than to any pixel of an image, and a multiple of 16, as cp.async needs of an
// address even where it reads nothing.
constexpr uint32_t OUTSIDE = ~15u;
enum { READY = 1, LOAD, MULTIPLY };  // numbers of barriers

template <int I>
struct Layer {
  static constexpr bool LAST = I == LAYERS - 1;
  static constexpr int KERNEL = KERNELS[I], TAPS = KERNEL * KERNEL, STRIDE = STRIDES[I];
  static constexpr int H = extent(I, TILE_H), W = extent(I, TILE_W);
  // Of what it reads. A 1x1 at the begin gathers the pixels that it needs, so that they are neighbours.
  static constexpr int STEP = I == 0 && KERNEL == 1 ? 1 : STRIDE, GATHER = STRIDE / STEP;
  static constexpr int IN_H = (H - 1) * STEP + KERNEL, IN_W = (W - 1) * STEP + KERNEL;
  // Pixels that it reads lie by the remainders of row and column by STEP: STEP x STEP smaller images.
  static constexpr int PHASE_H = (IN_H + STEP - 1) / STEP, PHASE_W = (IN_W + STEP - 1) / STEP;
  static constexpr int PLACES = rounded_up(STEP * STEP * PHASE_H * PHASE_W, I == 0 ? AHEAD : 1);
  static __host__ __device__ constexpr int place(int y, int x) {
    return ((y % STEP * STEP + x % STEP) * PHASE_H + y / STEP) * PHASE_W + x / STEP;
  }
  static __host__ __device__ constexpr int last_tap() {
    int last = 0;
    for (int tap = 0; tap < TAPS; ++tap) last = larger_of(last, place(tap / KERNEL, tap % KERNEL));
    return last;
  }
  static constexpr int IN = CHANNELS[I], OUT = CHANNELS[I + 1], BLOCK = COLUMNS[I];
  static constexpr int CHUNKS = rounded_up(IN, DEPTH) / DEPTH;
  static constexpr int BLOCKS = rounded_up(LAST ? OUT : rounded_up(OUT, DEPTH), BLOCK) / BLOCK;
  static constexpr int GROUPS_DOWN = DOWN[I] / 4, ACROSS = WARPS / DOWN[I], N_EACH = BLOCK / ACROSS / 8;
  static constexpr int ROWS = (H - 1) * PHASE_W + W, M_EACH = rounded_up(ROWS, 64 * GROUPS_DOWN) / 64 / GROUPS_DOWN;
  static constexpr int READ = larger_of(PLACES, last_tap() + 64 * M_EACH * GROUPS_DOWN);
  static constexpr int PITCH = I == 0 ? copied_pitch(READ, DEPTH) : READ;
  static_assert(IN % 8 == 0 && OUT % 8 == 0 && DOWN[I] % 4 == 0 && N_EACH % 4 == 0, "");
};

__host__ __device__ constexpr int widest(int layer) {
  return layer == 0 ? COLUMNS[0] : larger_of(COLUMNS[layer], widest(layer - 1));
}
__host__ __device__ constexpr int biases_before(int layer) {
  return layer == 0 ? 0 : biases_before(layer - 1) + CHANNELS[layer];
}
constexpr int WEIGHTS = widest(LAYERS - 1) * DEPTH;
constexpr int IMAGE = Layer<0>::PITCH * DEPTH;
constexpr int MIDDLE = Layer<1>::PITCH * Layer<1>::CHUNKS * DEPTH;
constexpr int LATE = LAYERS == 3 ? Layer<LAYERS - 1>::PITCH * Layer<LAYERS - 1>::CHUNKS * DEPTH : 0;

struct Shared {
  half weights[STAGES * WEIGHTS];
  half middle[MIDDLE];                            // what the first layer makes
  half image[larger_of(IMAGES * IMAGE, LATE)];    // chunks of the image, then what the second makes
  half biases[biases_before(LAYERS)];
  uint64_t full[STAGES], empty[STAGES], image_full[IMAGES], image_empty[IMAGES];
  alignas(16) uint32_t from[Layer<0>::PLACES];  // bytes from the image's begin to each pixel of a chunk, or OUTSIDE
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

// Zeros where what layer I reads has no pixels, in all planes of so many chunks, by those that multiply.
template <int I>
__device__ __forceinline__ void clear_rest(half* planes, int chunks) {
  using L = Layer<I>;
  constexpr int FIRST = I == 0 || L::STEP == 1 ? L::PLACES : 0;  // of the image, all places are copied or made zero
  for (int plane = 0; plane < chunks * UNITS; ++plane)
    for (int row = FIRST + threadIdx.x; row < L::PITCH; row += MULTIPLIERS) {
      const int phase = row / (L::PHASE_H * L::PHASE_W), y = row / L::PHASE_W % L::PHASE_H, x = row % L::PHASE_W;
      const bool there = row < L::PLACES && y * L::STEP + phase / L::STEP < L::IN_H && x * L::STEP + phase % L::STEP < L::IN_W;
      if (!there) *reinterpret_cast<uint4*>(planes + (plane * L::PITCH + row) * 8) = make_uint4(0, 0, 0, 0);
    }
}

template <int I>
__device__ __forceinline__ void copy_biases(Shared& s, const half* const (&biases)[LAYERS]) {
  for (int unit = threadIdx.x; unit < Layer<I>::OUT / 8; unit += MULTIPLIERS)
    reinterpret_cast<uint4*>(s.biases + biases_before(I))[unit] = reinterpret_cast<const uint4*>(biases[I])[unit];
  if constexpr (I > 0) copy_biases<I - 1>(s, biases);
}

// All weights of layer I and of those behind it, by one thread.
template <int I>
__device__ __forceinline__ void stream_weights(Shared& s, const half* from, Stage<STAGES> stage) {
  using L = Layer<I>;
#pragma unroll 1
  for (int step = 0; step < L::BLOCKS * L::CHUNKS * L::TAPS; ++step) {
    uint64_t* full = s.full + stage.number;
    wait(s.empty + stage.number, stage.parity ^ 1);
    arrive_expecting(full, 2 * L::BLOCK * DEPTH);
    copy_bulk(s.weights + stage.number * WEIGHTS, from, 2 * L::BLOCK * DEPTH, full);
    from += L::BLOCK * DEPTH;
    stage.next();
  }
  if constexpr (I + 1 < LAYERS) stream_weights<I + 1>(s, from, stage);
}

// Where each pixel of the image lies that the block reads.
__device__ __forceinline__ void place_pixels(Shared& s, const Chain& chain, int thread) {
  using L = Layer<0>;
  for (int place = thread; place < L::PLACES; place += LOADING) {
    const int phase = place / (L::PHASE_H * L::PHASE_W);
    const int y = place / L::PHASE_W % L::PHASE_H * L::STEP + phase / L::STEP;
    const int x = place % L::PHASE_W * L::STEP + phase % L::STEP;
    const int row = chain.first_y[0] + y * L::GATHER, column = chain.first_x[0] + x * L::GATHER;
    const bool inside = row >= 0 && row < chain.height[0] && column >= 0 && column < chain.width[0];
    const uint32_t from = 2u * (row * chain.width[0] + column) * L::IN;
    s.from[place] = inside && y < L::IN_H && x < L::IN_W ? from : OUTSIDE;
  }
}

// All chunks of the image, for each block of the first layer's channels, by LOADERS warps.
__device__ __forceinline__ void load_image(Shared& s, const Chain& chain, int thread) {
  using L = Layer<0>;
  const int unit = thread % UNITS, first = thread / UNITS * AHEAD;
  Stage<IMAGES> stage;
#pragma unroll 1
  for (int block = 0; block < L::BLOCKS; ++block)
#pragma unroll 1
    for (int k = unit * 8; k < L::CHUNKS * DEPTH; k += DEPTH) {
      half* to = s.image + stage.number * IMAGE + unit * L::PITCH * 8;
      const char* begin = reinterpret_cast<const char*>(chain.x + k);
      const bool deep = L::IN % DEPTH == 0 || k < L::IN;
      wait(s.image_empty + stage.number, stage.parity ^ 1);
#pragma unroll 2
      for (int place = first; place < L::PLACES; place += LOADING / UNITS * AHEAD) {
        const uint4 from = *reinterpret_cast<const uint4*>(s.from + place);
        const uint32_t each[] = {from.x, from.y, from.z, from.w};
#pragma unroll
        for (int ahead = 0; ahead < AHEAD; ++ahead)
          copy_or_zero(to + (place + ahead) * 8, reinterpret_cast<const half*>(begin + each[ahead]),
                       each[ahead] != OUTSIDE && deep);
      }
      copies_arrive(s.image_full + stage.number);
      stage.next();
    }
}

// A thread's part of layer I: of each 64 rows two, eight apart, of each eight columns two.
template <int I>
struct Part {
  using L = Layer<I>;
  int place[L::M_EACH][2];  // of its rows: where they are written; -1 where they are not
  bool inside[L::M_EACH][2];  // whether its rows are of the image

  // By rows of the result's pixels in planes of the next layer, or in y.
  __device__ __forceinline__ Part(const Chain& chain, int tile, int lane_row) {
#pragma unroll
    for (int m = 0; m < L::M_EACH; ++m)
#pragma unroll
      for (int half_tile = 0; half_tile < 2; ++half_tile) {
        const int row = (tile + m * L::GROUPS_DOWN) * 64 + half_tile * 8 + lane_row;
        const int y = row / L::PHASE_W, x = row % L::PHASE_W;
        const int down = chain.first_y[I + 1] + y, across = chain.first_x[I + 1] + x;
        const bool made = y < L::H && x < L::W;
        inside[m][half_tile] = made && down >= 0 && down < chain.height[I + 1] && across >= 0 && across < chain.width[I + 1];
        if constexpr (L::LAST)
          place[m][half_tile] = inside[m][half_tile] ? (down * chain.width[I + 1] + across) * L::OUT : -1;
        else
          place[m][half_tile] = made ? Layer<I + 1>::place(y, x) : -1;
      }
  }
};

// Of two channels; of those that the layer does not have, those of the last ones.
template <int I>
__device__ __forceinline__ float2 bias_of(const Shared& s, int channel) {
  using L = Layer<I>;
  if (L::BLOCKS * L::BLOCK > L::OUT) channel = min(channel, L::OUT - 2);
  return __half22float2(*reinterpret_cast<const half2*>(s.biases + biases_before(I) + channel));
}

// Sums of a block of channels, from `column` on, into the planes that the next layer reads.
template <int I>
__device__ __forceinline__ void store_between(Shared& s, const Part<I>& part,
                                              const float (&sums)[Layer<I>::M_EACH][Layer<I>::N_EACH][4], int column) {
  using L = Layer<I>;
  using Next = Layer<I + 1>;
  half* planes = (I == 0 ? s.middle : s.image) + column * Next::PITCH + threadIdx.x % 4 * 2;
#pragma unroll
  for (int n = 0; n < L::N_EACH; ++n) {
    const int channel = column + n * 8 + threadIdx.x % 4 * 2;
    const bool there = L::BLOCKS * L::BLOCK == L::OUT || channel < L::OUT;
    const bool read = L::BLOCKS * L::BLOCK == Next::CHUNKS * DEPTH || channel < Next::CHUNKS * DEPTH;
    const float2 bias = bias_of<I>(s, channel);
#pragma unroll
    for (int m = 0; m < L::M_EACH; ++m)
#pragma unroll
      for (int half_tile = 0; half_tile < 2; ++half_tile) {
        const bool real = part.inside[m][half_tile] && there;
        const float x = activated<I>(sums[m][n][2 * half_tile] + bias.x);
        const float y = activated<I>(sums[m][n][2 * half_tile + 1] + bias.y);
        store_if(part.place[m][half_tile] >= 0 && read, planes + (n * Next::PITCH + part.place[m][half_tile]) * 8,
                 __floats2half2_rn(real ? x : 0.f, real ? y : 0.f));
      }
  }
}

// Of the map that is added, eight channels of a pixel, from a thread's place on; zeros beyond the map.
template <int I>
__device__ __forceinline__ uint4 load_added(const Chain& chain, int place, int channel) {
  if (!@SOURCE@ || place < 0 || channel >= Layer<I>::OUT) return make_uint4(0, 0, 0, 0);
  return *reinterpret_cast<const uint4*>(chain.source + place + channel);
}

// Sums of a block of the last layer's channels, from `column` on, to y; `added` becomes that of the next block.
template <int I>
__device__ __forceinline__ void store_result(const Shared& s, const Chain& chain, const Part<I>& part,
                                             const float (&sums)[Layer<I>::M_EACH][Layer<I>::N_EACH][4],
                                             uint4 (&added)[Layer<I>::M_EACH][2][Layer<I>::N_EACH / 4], int column) {
  using L = Layer<I>;
#pragma unroll
  for (int m = 0; m < L::M_EACH; ++m)
#pragma unroll
    for (int half_tile = 0; half_tile < 2; ++half_tile)
#pragma unroll
      for (int n = 0; n < L::N_EACH; n += 4) {
        const int channel = column + (n + threadIdx.x % 4) * 8;
        uint4& given = added[m][half_tile][n / 4];
        uint32_t bits[] = {given.x, given.y, given.z, given.w};
        if (@SOURCE@) turn_quads(bits);
        given = load_added<I>(chain, part.place[m][half_tile], channel + L::BLOCK);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float2 bias = bias_of<I>(s, column + (n + k) * 8 + threadIdx.x % 4 * 2);
          float2 value = make_float2(activated<I>(sums[m][n + k][2 * half_tile] + bias.x),
                                     activated<I>(sums[m][n + k][2 * half_tile + 1] + bias.y));
          if (@SOURCE@) {
            const float2 more = __half22float2(reinterpret_cast<const half2&>(bits[k]));
            value = make_float2(value.x + more.x, value.y + more.y);
          }
          reinterpret_cast<half2&>(bits[k]) = __floats2half2_rn(after_sum(value.x), after_sum(value.y));
        }
        turn_quads(bits);
        if (part.place[m][half_tile] >= 0 && channel < L::OUT) store_unit(chain.y + part.place[m][half_tile] + channel, bits);
      }
}

// One group of products is on its way while the next one is issued; what it has read is handed back behind it.
template <int I>
__device__ __forceinline__ void layer(Shared& s, const Chain& chain, Stage<STAGES>& stage) {
  using L = Layer<I>;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
  const int tile = warp / 4 % L::GROUPS_DOWN, first = warp / 4 / L::GROUPS_DOWN * L::N_EACH * 8;
  const Part<I> part(chain, tile, warp % 4 * 16 + lane / 4);
  Stage<IMAGES> image;
  uint4 added[L::M_EACH][2][L::N_EACH / 4];
#pragma unroll
  for (int each = 0; each < L::M_EACH * 2 * L::N_EACH / 4; ++each)
    if constexpr (L::LAST) {
      const int m = each / (L::N_EACH / 2), half_tile = each / (L::N_EACH / 4) % 2, n = each % (L::N_EACH / 4);
      added[m][half_tile][n] = load_added<I>(chain, part.place[m][half_tile], first + (n * 4 + lane % 4) * 8);
    }
#pragma unroll 1
  for (int block = 0; block < L::BLOCKS; ++block) {
    const int column = block * L::BLOCK + first;
    float sums[L::M_EACH][L::N_EACH][4] = {};
    int read = -1, read_image = -1;  // stages that products on their way read
#pragma unroll 1
    for (int chunk = 0; chunk < L::CHUNKS; ++chunk) {
      const half* planes = I == 0   ? s.image + image.number * IMAGE
                           : I == 1 ? s.middle + chunk * DEPTH * L::PITCH
                                    : s.image + chunk * DEPTH * L::PITCH;
      if constexpr (I == 0) {
        wait(s.image_full + image.number, image.parity);
        fence_async();
      }
#pragma unroll 1
      for (int tap = 0; tap < L::TAPS; ++tap) {
        const int pixel = L::place(tap / L::KERNEL, tap % L::KERNEL) + tile * 64;
        const PlaneDescriptor left = plane_descriptor<L::PITCH>(planes + pixel * 8);
        const PlaneDescriptor right = plane_descriptor<L::BLOCK>(s.weights + stage.number * WEIGHTS + first * 8);
        wait(s.full + stage.number, stage.parity);
#pragma unroll
        for (int m = 0; m < L::M_EACH; ++m) hold(sums[m]);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int m = 0; m < L::M_EACH; ++m)
#pragma unroll
          for (int k = 0; k < UNITS; k += 2)
            multiply_group(sums[m], left.moved(k * L::PITCH + m * L::GROUPS_DOWN * 64), right.moved(k * L::BLOCK));
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#pragma unroll
        for (int m = 0; m < L::M_EACH; ++m) hold(sums[m]);
        if (lane == 0 && read >= 0) arrive(s.empty + read);
        if (I == 0 && lane == 0 && tap == 0 && read_image >= 0) arrive(s.image_empty + read_image);
        read = stage.number;
        stage.next();
      }
      if constexpr (I == 0) {
        read_image = image.number;
        image.next();
      }
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int m = 0; m < L::M_EACH; ++m) hold(sums[m]);
    if (lane == 0) arrive(s.empty + read);
    if (I == 0 && lane == 0) arrive(s.image_empty + read_image);
    if constexpr (L::LAST)
      store_result<I>(s, chain, part, sums, added, column);
    else
      store_between<I>(s, part, sums, column);
  }
  if constexpr (!L::LAST) {
    fence_async();
    meet<MULTIPLY, MULTIPLIERS>();
    // What the second layer makes lies where the image was.
    if constexpr (I == 0 && LAYERS == 3)
      clear_rest<I + 2>(s.image, Layer<I + 2>::CHUNKS);
    layer<I + 1>(s, chain, stage);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, @SHARERS@)
    convolution_chain(const half* __restrict__ x, const half* __restrict__ weights, @PARAMETERS@,
                      const half* __restrict__ source, half* __restrict__ y, Dims heights, Dims widths, Dims pads_y,
                      Dims pads_x) {
  extern __shared__ __align__(128) unsigned char storage[];
  Shared& s = *reinterpret_cast<Shared*>(storage);
  Chain chain = {x, source, y};
#pragma unroll
  for (int i = 0; i <= LAYERS; ++i) chain.height[i] = heights.v[i], chain.width[i] = widths.v[i];
  chain.first_y[LAYERS] = blockIdx.y * TILE_H, chain.first_x[LAYERS] = blockIdx.x * TILE_W;
  place_tiles<LAYERS - 1>(chain, pads_y, pads_x);
  const size_t made = size_t(blockIdx.z) * chain.height[LAYERS] * chain.width[LAYERS] * Layer<LAYERS - 1>::OUT;
  chain.x += size_t(blockIdx.z) * chain.height[0] * chain.width[0] * Layer<0>::IN;
  chain.source += made, chain.y += made;
  // Who fills stages makes their mbarriers, and begins; who multiplies comes when all are made.
  if (threadIdx.x < MULTIPLIERS) {
    const half* const biases[] = {@BIASES@};
    copy_biases<LAYERS - 1>(s, biases);
    for (int image = 0; image < IMAGES; ++image) clear_rest<0>(s.image + image * IMAGE, 1);
    clear_rest<1>(s.middle, Layer<1>::CHUNKS);
    meet<READY, THREADS>();
    Stage<STAGES> stage;
    layer<0>(s, chain, stage);
  } else if (const int thread = threadIdx.x - MULTIPLIERS; thread < LOADING) {
    if (thread == 0) {
      make_barriers(s.image_full, IMAGES, LOADING);
      make_barriers(s.image_empty, IMAGES, WARPS);
    }
    place_pixels(s, chain, thread);
    meet<LOAD, LOADING>();
    pass<READY, THREADS>();
    load_image(s, chain, thread);
  } else {
    if (thread == LOADING) {
      make_barriers(s.full, STAGES, 1);
      make_barriers(s.empty, STAGES, WARPS);
      barriers_made();
    }
    __syncwarp();
    pass<READY, THREADS>();
    if (thread == LOADING) stream_weights<0>(s, weights, Stage<STAGES>());
  }
}
