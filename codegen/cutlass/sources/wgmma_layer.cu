// A convolution, or a product by a constant matrix, by wgmma: rows are pixels of the result, columns are filters.
//
//   image, 64 channels of a tap at a time  --cp.async-->   stages -> wgmma -> activation, (+ a map), activation -> y
//   weights, which lie as a stage does     --bulk copy-->
//
// Four warps copy: they know of each row of a tile where its window begins and which of its taps are inside the image.
// Two groups of four warps multiply; they only wait for a stage, multiply, and hand it back. They compute a tile together
// (SHARE = 2), or each its own by turns, so that one multiplies while the other one stores. A block computes tile after
// tile.
//
// Rows of a stage are 64 halves, 128 bytes, whose units of 16 bytes are exchanged by the number of the row.
//
// NORMALISED: rows of the left operand go through a layer or RMS norm first, whose scale is part of the weights. Those who
// multiply read a stage once more while its products are on their way, and behind the last step take the rows' means and
// deviations into account (`Statistics`).
//
// PARTS > 1: a block computes a part of the steps of a tile, and y are floats, PARTS results one after the other, whose sum
// is left to another kernel (`sum_parts.cu`). The first part has the bias.
constexpr int ROWS = @ROWS@, COLUMNS = @COLUMNS@, STAGES = @STAGES@, SHARE = @SHARE@;
constexpr bool POINTWISE = @POINTWISE@;  // rows of the left operand lie one after the other in memory
constexpr bool NORMALISED = @NORMALISED@;  // by the deviation of rows
constexpr bool CENTRED = @CENTRED@;        // rows are reduced by their mean before
constexpr int PARTS = @PARTS@;             // of a tile's depth
constexpr int GROUPS = 2, MULTIPLIERS = 128 * GROUPS, LOADERS = 128, THREADS = MULTIPLIERS + LOADERS;
constexpr int DEPTH = 64, UNITS = DEPTH / 8;
constexpr int M_EACH = ROWS / SHARE / 64, N_EACH = COLUMNS / 8, ROWS_EACH = 2 * M_EACH;
constexpr bool ADDED = @SOURCE@ && PARTS == 1;  // a map, to the sums
constexpr int AHEAD = @AHEAD@;                  // rows of a thread for which that is on its way during products
constexpr int COPIES = ROWS * UNITS / LOADERS, ROWS_AT_ONCE = LOADERS / UNITS;
constexpr int A_STAGE = ROWS * DEPTH, B_STAGE = COLUMNS * DEPTH;
static_assert(ROWS % (64 * SHARE) == 0 && COLUMNS % 32 == 0, "");

struct Shared {
  half a[STAGES * A_STAGE], b[STAGES * B_STAGE];
  uint64_t full[STAGES], empty[STAGES], turn[GROUPS];
};
static_assert(sizeof(Shared) == @SHARED@, "what the launch asks for");

@OPERATORS@

// What all threads know.
struct Layer {
  const half* x;
  const half* weights;
  const half* biases;  // NORMALISED: floats, for each tile scales of its columns, sums of their weights, then biases
  const half* source;
  half* y;
  int height, width, channels;           // of the image
  int rows, high, wide, filters;         // of the result: all pixels, and those of one image
  int down, across;                      // taps
  int stride_y, stride_x, dilation_y, dilation_x, top, left;
  int column_tiles, items, chunks, steps;  // an item: a part of a tile, those of a tile one after the other
};

// Of a part of a tile, the steps from the first one on.
struct Steps {
  int first, count;
};
__device__ __forceinline__ Steps steps_of(const Layer& layer, int item) {
  if constexpr (PARTS == 1) return {0, layer.steps};
  const int part = item % PARTS, first = part * layer.steps / PARTS;
  return {first, (part + 1) * layer.steps / PARTS - first};
}

// `bit` and those behind it, one for each tap along an axis that is inside the image.
__device__ __forceinline__ uint32_t inside(int first, int dilation, int taps, int extent, uint32_t bit) {
  uint32_t seen = 0;
#pragma unroll 1
  for (int tap = 0; tap < taps; ++tap, first += dilation, bit <<= 1)
    if (first >= 0 && first < extent) seen |= bit;
  return seen;
}

// Of the rows that this thread copies a unit of: bytes from the image's begin to the window's first pixel, which may be
// outside, and which taps are inside the image. Each lane finds out about one row, and tells the others.
__device__ __forceinline__ void place_rows(const Layer& layer, int first, uint32_t (&from)[COPIES], uint32_t (&seen)[COPIES]) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
#pragma unroll
  for (int set = 0; set < COPIES; set += 8) {
    const int row = first + (set + lane / 4) * ROWS_AT_ONCE + warp * 4 + lane % 4;
    uint32_t begin, taps = 0;
    if constexpr (POINTWISE) {
      begin = 2u * row * layer.channels;
      if (row < layer.rows) taps = 1u | 1u << 16;
    } else {
      const int pixels = layer.high * layer.wide, image = row / pixels, pixel = row - image * pixels;
      const int y = pixel / layer.wide * layer.stride_y - layer.top, x = pixel % layer.wide * layer.stride_x - layer.left;
      begin = 2u * ((image * layer.height + y) * layer.width + x) * layer.channels;
      if (row < layer.rows)
        taps = inside(y, layer.dilation_y, layer.down, layer.height, 1u) |
               inside(x, layer.dilation_x, layer.across, layer.width, 1u << 16);
    }
#pragma unroll
    for (int copy = set; copy < COPIES && copy < set + 8; ++copy) {
      from[copy] = __shfl_sync(~0u, begin, (copy - set) * 4 + lane / 8) + lane % 8 * 16;
      seen[copy] = __shfl_sync(~0u, taps, (copy - set) * 4 + lane / 8);
    }
  }
}

// A step of a tile into a stage: a part of the channels of one tap, and the weights for it.
__device__ __forceinline__ void load_step(Shared& s, const Layer& layer, const Stage<STAGES>& stage, const half* weights,
                                          const uint32_t (&from)[COPIES], const uint32_t (&seen)[COPIES],
                                          uint32_t tap, uint32_t away) {
  const int thread = threadIdx.x - MULTIPLIERS, row = thread / UNITS;
  uint64_t* full = s.full + stage.number;
  wait(s.empty + stage.number, stage.parity ^ 1);
  if (thread == 0) {
    arrive_expecting(full, 2 * B_STAGE);
    copy_bulk(s.b + stage.number * B_STAGE, weights, 2 * B_STAGE, full);
  }
  half* to = s.a + stage.number * A_STAGE + row * DEPTH + ((thread ^ row) % UNITS) * 8;
#pragma unroll
  for (int copy = 0; copy < COPIES; ++copy) {
    const char* place = reinterpret_cast<const char*>(layer.x) + (from[copy] + away);
    copy_or_zero(to + copy * ROWS_AT_ONCE * DEPTH, reinterpret_cast<const half*>(place), (seen[copy] & tap) == tap);
  }
  copies_arrive(full);
}

__device__ __forceinline__ void load_tiles(Shared& s, const Layer& layer) {
  const int unit = threadIdx.x % UNITS;
  Stage<STAGES> stage;
#pragma unroll 1
  for (int item = blockIdx.x; item < layer.items; item += gridDim.x) {
    const int tile = item / PARTS, row_tile = tile / layer.column_tiles, column_tile = tile - row_tile * layer.column_tiles;
    const Steps own = steps_of(layer, item);
    const half* weights = layer.weights + (size_t(column_tile) * layer.steps + own.first) * B_STAGE;
    uint32_t from[COPIES], seen[COPIES];
    place_rows(layer, row_tile * ROWS, from, seen);
    const int down = POINTWISE ? 1 : layer.down, across = POINTWISE ? 1 : layer.across, taps = down * across;
    int left = own.count, channel = own.first / taps * DEPTH;
    int y = own.first % taps / across, x = own.first % taps % across;
#pragma unroll 1
    for (; PARTS == 1 ? channel < layer.channels : left > 0; channel += DEPTH, y = 0) {
      const bool deep = channel + unit * 8 < layer.channels;
#pragma unroll 1
      for (; y < down && (PARTS == 1 || left > 0); ++y, x = 0)
#pragma unroll 1
        for (; x < across && (PARTS == 1 || left > 0); ++x, --left) {
          // No row has bit 15: channels that there are not are zeros.
          const uint32_t tap = deep ? 1u << y | 0x10000u << x : 0x8000u;
          const uint32_t away = (y * layer.dilation_y * layer.width + x * layer.dilation_x) * layer.channels + channel;
          load_step(s, layer, stage, weights, from, seen, tap, 2 * (POINTWISE ? channel : away));
          weights += B_STAGE;
          stage.next();
        }
    }
  }
}

// A thread has sums of eight neighbouring filters in every 32, two in each of four columns of products: filters lie in
// stages so that they do. Sums begin with the bias; those of filters that there are not with any. Those of a part begin
// with zeros, but for the first one's.
__device__ __forceinline__ void begin_sums(const Layer& layer, int column, int part, float (&sums)[M_EACH][N_EACH][4]) {
  if (NORMALISED || PARTS > 1 && part > 0) {
#pragma unroll
    for (int m = 0; m < M_EACH; ++m)
#pragma unroll
      for (int n = 0; n < N_EACH; ++n)
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[m][n][k] = 0;
    return;
  }
  column += threadIdx.x % 4 * 8;
#pragma unroll
  for (int n = 0; n < N_EACH; n += 4) {
    float biases[8];
    load<8>(biases, layer.biases + min(column + n * 8, layer.filters - 8));
#pragma unroll
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int m = 0; m < M_EACH; ++m) {
        sums[m][n + k][0] = sums[m][n + k][2] = biases[2 * k];
        sums[m][n + k][1] = sums[m][n + k][3] = biases[2 * k + 1];
      }
  }
}

// Two neighbours, no earlier than between the stores before and after: compilers would fetch those of all columns first.
__device__ __forceinline__ float2 load_pair(const float* from) {
  float2 pair;
  asm volatile("ld.global.v2.f32 {%0, %1}, [%2];"
               : "=f"(pair.x), "=f"(pair.y)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return pair;
}

// Sums and sums of squares of the rows that a warp has sums of products of, by the tensor cores: of eight rows X a product
// of X over ones by X, in whose upper half the diagonal has squares, and whose lower half has sums.
struct Statistics {
  float found[M_EACH][2][4] = {};
  float mean[M_EACH][2], factor[M_EACH][2];  // of rows lane / 4 and eight further: one over the root of the variance

  // Of a stage, from this warp's first row on. Channels that there are not are zeros.
  __device__ __forceinline__ void add_step(const half* rows) {
    const int lane = threadIdx.x % 32, unit = lane / 8 % 2;
    rows += (lane / 16 * 8 + lane % 8) * DEPTH;
#pragma unroll
    for (int k = 0; k < UNITS; k += 2)
#pragma unroll
      for (int m = 0; m < M_EACH; ++m) {
        uint32_t x[4];
        load_matrices(x, rows + m * 64 * DEPTH + ((k + unit) ^ lane % 8) * 8);
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) {
          const uint32_t low = x[2 * eight], high = x[2 * eight + 1], ones = 0x3C003C00;
          multiply_add(found[m][eight], {low, ones, high, ones}, {low, high});
        }
      }
  }

  // Of the rows from `row` on, which is lane / 4 of this warp's. A variance that is little of the mean's square is lost in
  // a difference of squares: those are found by differences from the mean, from the rows in global memory.
  __device__ __forceinline__ void finish(const Layer& layer, int row) {
    const int lane = threadIdx.x % 32, holder = lane & ~3 | lane / 8;
    const float each = 1.f / layer.channels;
    bool far = false;
#pragma unroll
    for (int m = 0; m < M_EACH; ++m)
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) {
        const float(&own)[4] = found[m][eight];
        const float square = __shfl_sync(~0u, lane & 4 ? own[1] : own[0], holder) * each;
        mean[m][eight] = CENTRED ? __shfl_sync(~0u, lane & 4 ? own[3] : own[2], holder) * each : 0;
        factor[m][eight] = square - mean[m][eight] * mean[m][eight];
        far |= is_far(m, eight);
      }
    if (CENTRED && __any_sync(~0u, far)) {
#pragma unroll
      for (int m = 0; m < M_EACH; ++m)
#pragma unroll
        for (int eight = 0; eight < 2; ++eight) read_again(layer, min(row + m * 64 + eight * 8, layer.rows - 1), m, eight);
    }
#pragma unroll
    for (int m = 0; m < M_EACH; ++m)
#pragma unroll
      for (int eight = 0; eight < 2; ++eight) factor[m][eight] = rsqrtf(factor[m][eight] + @EPSILON@);
  }

  __device__ __forceinline__ bool is_far(int m, int eight) const {
    return mean[m][eight] * mean[m][eight] > @FAR@ * factor[m][eight];
  }

  __device__ __forceinline__ void read_again(const Layer& layer, int row, int m, int eight) {
    const half* x = layer.x + size_t(row) * layer.channels;
    float sum = 0, square = 0;
#pragma unroll 1
    for (int channel = threadIdx.x % 4 * 8; channel < layer.channels; channel += 32) {
      float unit[8];
      load(unit, x + channel);
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float apart = unit[k] - mean[m][eight];
        sum += apart, square += apart * apart;
      }
    }
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2)
      sum += __shfl_xor_sync(~0u, sum, lanes), square += __shfl_xor_sync(~0u, square, lanes);
    if (!is_far(m, eight)) return;
    const float each = 1.f / layer.channels, off = sum * each;
    mean[m][eight] += off, factor[m][eight] = fmaxf(square * each - off * off, 0);
  }

  // Sums of products of two columns as those of a normalised row: x W - mean (sums of W's columns), over the deviation;
  // scale and bias.
  __device__ __forceinline__ float2 normalised(const float* scales, int m, int eight, float2 sum) const {
    const float2 scale = load_pair(scales), bias = load_pair(scales + 2 * COLUMNS);
    if (CENTRED) {
      const float2 weights = load_pair(scales + COLUMNS);
      sum.x -= mean[m][eight] * weights.x, sum.y -= mean[m][eight] * weights.y;
    }
    return make_float2(sum.x * (factor[m][eight] * scale.x) + bias.x, sum.y * (factor[m][eight] * scale.y) + bias.y);
  }
};

// Eight neighbours, neither earlier nor later than here.
__device__ __forceinline__ uint4 load_unit(const half* from) {
  uint4 unit;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(unit.x), "=r"(unit.y), "=r"(unit.z), "=r"(unit.w)
               : "l"(__cvta_generic_to_global(from))
               : "memory");
  return unit;
}

// What is added to the sums of the next of a thread's rows.
struct Added {
  static constexpr int HELD = AHEAD ? AHEAD : 1;
  uint4 filters[HELD][N_EACH / 4];

  // Of the thread's row `each`, in the place of one that was added; `row` is its first, in every eight one.
  __device__ __forceinline__ void load_row(const Layer& layer, int row, int column, int each) {
    column += threadIdx.x % 4 * 8, row += each / 2 * 64 + each % 2 * 8;
    const half* source = layer.source + size_t(row) * layer.filters + column;
#pragma unroll
    for (int n = 0; n < N_EACH / 4; ++n) {
      uint4& own = filters[each % HELD][n];
      own = make_uint4(0, 0, 0, 0);
      if (row < layer.rows && column + n * 32 < layer.filters) own = load_unit(source + n * 32);
    }
  }
};

// Eight neighbouring filters of a row by each thread of a quad, 64 bytes by all four.
__device__ __forceinline__ void store_sums(const Layer& layer, int row, int column, const float (&sums)[M_EACH][N_EACH][4],
                                           Added& added, const Statistics& statistics) {
  const int first = column;
  const float* scales = reinterpret_cast<const float*>(layer.biases) + 3 * column + threadIdx.x % 4 * 8;
  column += threadIdx.x % 4 * 8;
#pragma unroll
  for (int each = 0; each < ROWS_EACH; ++each) {
    const int m = each / 2, eight = each % 2, own = row + m * 64 + eight * 8;
    half* y = layer.y + size_t(own) * layer.filters + column;
    if (ADDED && AHEAD == 0) added.load_row(layer, row, first, each);
#pragma unroll
    for (int n = 0; n < N_EACH / 4; ++n) {
      const half2* more = reinterpret_cast<const half2*>(&added.filters[each % Added::HELD][n]);
      uint32_t bits[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float(&own_sums)[4] = sums[m][n * 4 + k];
        float2 value = make_float2(own_sums[2 * eight], own_sums[2 * eight + 1]);
        if constexpr (NORMALISED) value = statistics.normalised(scales + n * 32 + k * 2, m, eight, value);
        value = make_float2(before_sum(value.x), before_sum(value.y));
        if (ADDED) {
          const float2 two = __half22float2(more[k]);
          value = make_float2(value.x + two.x, value.y + two.y);
        }
        reinterpret_cast<half2&>(bits[k]) = __floats2half2_rn(after_sum(value.x), after_sum(value.y));
      }
      if (own < layer.rows && column + n * 32 < layer.filters) store_unit(y + n * 32, bits);
    }
    if (ADDED && AHEAD && each + AHEAD < ROWS_EACH) added.load_row(layer, row, first, each + AHEAD);
  }
}

// Eight neighbouring filters of a row by each thread of a quad, 128 bytes by all four, as they are.
__device__ __forceinline__ void store_part(const Layer& layer, int row, int column, int part,
                                           const float (&sums)[M_EACH][N_EACH][4]) {
  float* y = reinterpret_cast<float*>(layer.y) + size_t(part) * layer.rows * layer.filters;
  column += threadIdx.x % 4 * 8;
#pragma unroll
  for (int m = 0; m < M_EACH; ++m)
#pragma unroll
    for (int eight = 0; eight < 2; ++eight) {
      const int own = row + m * 64 + eight * 8;
      float* to = y + size_t(own) * layer.filters + column;
#pragma unroll
      for (int n = 0; n < N_EACH; n += 2) {
        const float(&low)[4] = sums[m][n], (&high)[4] = sums[m][n + 1];
        if (own < layer.rows && column + n / 4 * 32 < layer.filters)
          *reinterpret_cast<float4*>(to + n / 4 * 32 + n % 4 * 2) =
              make_float4(low[2 * eight], low[2 * eight + 1], high[2 * eight], high[2 * eight + 1]);
      }
    }
}

// One group of products is on its way while the next one is issued; the stage that it has read is handed back then.
// Parities tell only neighbouring phases apart, so a group waits for stages when the other one has seen all of its own.
__device__ __forceinline__ void multiply_tiles(Shared& s, const Layer& layer) {
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;
  const int half_tile = SHARE == 1 ? 0 : group, turn = SHARE == 1 ? group : 0;
  Stage<STAGES> stage;
  uint32_t parity = turn ^ 1;  // of a turn; the first one needs no waiting
  if (turn) stage.skip(steps_of(layer, blockIdx.x).count);
#pragma unroll 1
  for (int item = blockIdx.x + turn * gridDim.x; item < layer.items; item += GROUPS / SHARE * gridDim.x) {
    const int tile = item / PARTS, row_tile = tile / layer.column_tiles;
    const int column = (tile - row_tile * layer.column_tiles) * COLUMNS, steps = steps_of(layer, item).count;
    const int row = row_tile * ROWS + half_tile * M_EACH * 64 + warp % 4 * 16 + lane / 4;
    Added added;
#pragma unroll
    for (int each = 0; each < AHEAD; ++each)
      if (ADDED) added.load_row(layer, row, column, each);
    float sums[M_EACH][N_EACH][4];
    begin_sums(layer, column, item % PARTS, sums);
    Statistics statistics;
    int read = -1;
    if (SHARE == 1) wait(s.turn + turn, parity), parity ^= 1;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      const SwizzledDescriptor left = swizzled_descriptor(s.a + stage.number * A_STAGE + half_tile * M_EACH * 64 * DEPTH);
      const SwizzledDescriptor right = swizzled_descriptor(s.b + stage.number * B_STAGE);
      wait(s.full + stage.number, stage.parity);
      fence_async();
#pragma unroll
      for (int m = 0; m < M_EACH; ++m) hold(sums[m]);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int k = 0; k < UNITS; k += 2)
#pragma unroll
        for (int m = 0; m < M_EACH; ++m) multiply_group(sums[m], left.moved(m * 64 * UNITS + k), right.moved(k));
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      if constexpr (NORMALISED) {
        statistics.add_step(s.a + stage.number * A_STAGE + (half_tile * M_EACH * 64 + warp % 4 * 16) * DEPTH);
        __syncwarp();  // one lane hands the stage back for all
      }
      asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
#pragma unroll
      for (int m = 0; m < M_EACH; ++m) hold(sums[m]);
      if (lane == 0 && read >= 0) arrive(s.empty + read);
      read = stage.number;
      stage.next();
    }
    if (SHARE == 1 && lane == 0) arrive(s.turn + (turn ^ 1));
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int m = 0; m < M_EACH; ++m) hold(sums[m]);
    if (lane == 0) arrive(s.empty + read);
    if constexpr (NORMALISED) statistics.finish(layer, row);
    if constexpr (PARTS > 1)
      store_part(layer, row, column, item % PARTS, sums);
    else
      store_sums(layer, row, column, sums, added, statistics);
    if (SHARE == 1) stage.skip(steps_of(layer, item + gridDim.x).count);  // what the other group reads
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, @SHARERS@)
    wgmma_layer(const half* __restrict__ x, const half* __restrict__ weights, const half* __restrict__ biases,
                const half* __restrict__ source, half* __restrict__ y, Dims image, Dims result, Dims window, Dims pads) {
  extern __shared__ __align__(1024) unsigned char storage[];
  Shared& s = *reinterpret_cast<Shared*>(storage);
  Layer layer = {x, weights, biases, source, y};
  layer.height = image.v[0], layer.width = image.v[1], layer.channels = image.v[2];
  layer.rows = result.v[0], layer.high = result.v[1], layer.wide = result.v[2], layer.filters = result.v[3];
  layer.down = window.v[0], layer.across = window.v[1], layer.stride_y = window.v[2], layer.stride_x = window.v[3];
  layer.dilation_y = window.v[4], layer.dilation_x = window.v[5], layer.top = pads.v[0], layer.left = pads.v[1];
  layer.column_tiles = (layer.filters + COLUMNS - 1) / COLUMNS;
  layer.items = (layer.rows + ROWS - 1) / ROWS * layer.column_tiles * PARTS;
  layer.steps = (layer.channels + DEPTH - 1) / DEPTH * layer.down * layer.across;
  if (threadIdx.x == MULTIPLIERS) {
    make_barriers(s.full, STAGES, LOADERS + 1);
    make_barriers(s.empty, STAGES, 4 * SHARE);
    make_barriers(s.turn, GROUPS, 4);
    barriers_made();
  }
  __syncthreads();
  if (threadIdx.x >= MULTIPLIERS) {
    take_fewer_registers<@LOADER_REGISTERS@>();
    load_tiles(s, layer);
  } else {
    take_more_registers<@MULTIPLIER_REGISTERS@>();
    multiply_tiles(s, layer);
  }
}
