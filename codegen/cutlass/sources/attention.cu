// Attention in one kernel: weights are never stored. A block computes ROWS rows of a head of k and v, those of all heads
// of q that share it one after the other; a warp 16 of them.
//
//   q (once, in registers) -> times BLOCK keys -> scale, (+ mask) -> powers of 2 less the largest so far, as halves
//     -> times BLOCK rows of v, added to what there was, which is made smaller where the largest has grown
//   at the end over the sum of powers -> operators -> y
//
// Two blocks of keys and values are in shared memory: one is read while the next is on its way.
constexpr int SIZE = @SIZE@, WIDTH = @WIDTH@, HEADS = @HEADS@, SHARED_BY = @SHARED_BY@;
constexpr int ROWS = @ROWS@, BLOCK = @BLOCK@, FIRST_SEES = @FIRST_SEES@;
constexpr bool MASKED = @MASKED@;
constexpr bool BY_EIGHT = @BY_EIGHT@;                 // rows of heads begin at multiples of eight elements
constexpr float SCALE = @SCALE@, LOG2E = 1.4426950409f;  // SCALE: of scores, times LOG2E
constexpr bool SCALED_FIRST = MASKED || !(SCALE > 0.f);  // else behind the largest
constexpr int THREADS = ROWS * 2, GROUPS = HEADS / SHARED_BY, V = @V@, RANK = 3;
constexpr int DEEP = rounded_up(SIZE, 16), WIDE = rounded_up(WIDTH, 16), TILES = BLOCK / 8;
constexpr int PITCH = copied_pitch(BLOCK, DEEP), Q_PITCH = copied_pitch(ROWS, DEEP), KEYS = DEEP * PITCH, VALUES = WIDE * PITCH;
constexpr int END_PITCH = WIDE + 4;
static_assert(ROWS % 16 == 0 && BLOCK % 16 == 0, "");

struct Stages {
  half q[DEEP * Q_PITCH];
  half keys[2 * KEYS];
  half values[2 * VALUES];
};
union Shared {
  Stages stages;
  float end[ROWS * END_PITCH];
};
static_assert(sizeof(Shared) == @SHARED@, "what the launch asks for");

// Four 8 x 8 matrices, each with rows and columns exchanged.
__device__ __forceinline__ void load_turned(uint32_t (&r)[4], const half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// COUNT rows of EACH halves, by all threads, into planes of DEPTH: what there is not is zeros and not read. `at` gives
// where a row is.
template <int P, int COUNT, int EACH_ROW, int DEPTH, typename At>
__device__ __forceinline__ void copy_rows(half* to, const half* from, int there, At at) {
  constexpr int UNITS = DEPTH / 8, STEPS = (COUNT * UNITS + THREADS - 1) / THREADS, AT_ONCE = STEPS < 4 ? STEPS : 4;
#pragma unroll AT_ONCE
  for (int first = 0; first < COUNT * UNITS; first += THREADS) {
    const int i = first + threadIdx.x, row = i / UNITS, unit = i % UNITS;
    if (COUNT * UNITS % THREADS != 0 && i >= COUNT * UNITS) break;
    half* target = to + (unit * P + row) * 8;
    const half* source = from + (row < there ? at(row) : 0);
    if constexpr (BY_EIGHT) {
      const bool inside = row < there && unit * 8 < EACH_ROW;
      copy_or_zero(target, inside ? source + unit * 8 : from, inside);
    } else {
#pragma unroll
      for (int k = 0; k < 8; ++k)
        target[k] = row < there && unit * 8 + k < EACH_ROW ? source[unit * 8 + k] : __float2half_rn(0.f);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, @SHARERS@)
    attention(half* __restrict__ y, const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
              const half* __restrict__ mask, int rows, int keys, Layout steps@PARAMETERS@) {
  extern __shared__ __align__(128) unsigned char storage[];
  Shared& shared = *reinterpret_cast<Shared*>(storage);
  Stages& s = shared.stages;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int all_rows = SHARED_BY * rows, row_blocks = (all_rows + ROWS - 1) / ROWS;
  int rest = blockIdx.x;
  // Of rows that see more and more, those that see the most begin first.
  const int row_block = FIRST_SEES ? row_blocks - 1 - rest % row_blocks : rest % row_blocks;
  rest /= row_blocks;
  const int group = rest % GROUPS, item = rest / GROUPS, first_row = row_block * ROWS, there = all_rows - first_row;

  int seen = keys;  // by any row of the block
  if (FIRST_SEES) {
    const int last = min(first_row + ROWS, all_rows) - 1;
    seen = min(keys, FIRST_SEES + (first_row / rows == last / rows ? last % rows : rows - 1));
  }
  const int blocks = (seen + BLOCK - 1) / BLOCK;

  k += item * steps.k.item + group * steps.k.head;
  v += item * steps.v.item + group * steps.v.head;
  const auto start = [&](int block) {
    const int first = block * BLOCK;
    copy_rows<PITCH, BLOCK, SIZE, DEEP>(s.keys + block % 2 * KEYS, k, keys - first,
                                        [&](int row) { return (first + row) * steps.k.row; });
    copy_rows<PITCH, BLOCK, WIDTH, WIDE>(s.values + block % 2 * VALUES, v, keys - first,
                                         [&](int row) { return (first + row) * steps.v.row; });
    copies_end();
  };
  copy_rows<Q_PITCH, ROWS, SIZE, DEEP>(s.q, q + item * steps.q.item, there, [&](int row) {
    const int each = first_row + row, head = SHARED_BY == 1 ? 0 : each / rows;
    return (group * SHARED_BY + head) * steps.q.head + (each - head * rows) * steps.q.row;
  });
  start(0);
  copies_wait<0>();
  __syncthreads();

  uint32_t left[DEEP / 16][4];
#pragma unroll
  for (int k = 0; k < DEEP / 16; ++k) load_left<Q_PITCH>(left[k], s.q + k * 2 * Q_PITCH * 8, warp * 16 + lane % 16);
  int heads[2], places[2];  // of this lane's two rows; those that there are not are like the last
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = min(first_row + warp * 16 + lane / 4 + 8 * i, all_rows - 1);
    heads[i] = group * SHARED_BY + (SHARED_BY == 1 ? 0 : row / rows), places[i] = SHARED_BY == 1 ? row : row % rows;
  }
  float sums[WIDE / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, totals[2] = {0.f, 0.f};

#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {
    if (block > 0) {  // it is there, and nobody reads the one before any more
      copies_wait<0>();
      __syncthreads();
    }
    if (block + 1 < blocks) start(block + 1);
    const half* block_keys = s.keys + block % 2 * KEYS;
    const half* block_values = s.values + block % 2 * VALUES;
    const int first = block * BLOCK;

    float c[TILES][4] = {};
#pragma unroll
    for (int k = 0; k < DEEP / 16; ++k)
#pragma unroll
      for (int n = 0; n < TILES; n += 2) {
        uint32_t right[4];
        load_right<PITCH>(right, block_keys + k * 2 * PITCH * 8, n * 8);
        const uint32_t low[2] = {right[0], right[1]}, high[2] = {right[2], right[3]};
        multiply_add(c[n], left[k], low);
        multiply_add(c[n + 1], left[k], high);
      }

    if (SCALED_FIRST) {
#pragma unroll
      for (int n = 0; n < TILES; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) c[n][e] *= SCALE;
    }
    if (MASKED) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const half* of_row = mask + item * steps.mask.item + heads[i] * steps.mask.head + places[i] * steps.mask.row + first;
#pragma unroll
        for (int n = 0; n < TILES; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int column = n * 8 + lane % 4 * 2 + e;
            if (first + column < keys) c[n][2 * i + e] += LOG2E * __half2float(of_row[column]);
          }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int sees = (FIRST_SEES ? min(keys, FIRST_SEES + places[i]) : keys) - first;
      if (sees < BLOCK) {
#pragma unroll
        for (int n = 0; n < TILES; ++n)
#pragma unroll
          for (int e = 0; e < 2; ++e)
            if (n * 8 + lane % 4 * 2 + e >= sees) c[n][2 * i + e] = -INFINITY;
      }
    }

    constexpr float TIMES = SCALED_FIRST ? 1.f : SCALE;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float now = largest[i];
#pragma unroll
      for (int n = 0; n < TILES; ++n) now = fmaxf(now, fmaxf(c[n][2 * i], c[n][2 * i + 1]));
      now = largest_of_row(now);
      const float from = now == -INFINITY ? 0.f : now;  // rows that have seen nothing yet
      const float shrunk = power_of_2((largest[i] - from) * TIMES);
      largest[i] = now;
      float total = 0.f;
#pragma unroll
      for (int n = 0; n < TILES; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& each = c[n][2 * i + e];
          each = power_of_2(fmaf(each, TIMES, -from * TIMES));
          total += each;
        }
      totals[i] = totals[i] * shrunk + total;
#pragma unroll
      for (int n = 0; n < WIDE / 8; ++n) sums[n][2 * i] *= shrunk, sums[n][2 * i + 1] *= shrunk;
    }

#pragma unroll
    for (int k = 0; k < BLOCK / 16; ++k) {
      const uint32_t weights[4] = {as_halves(c[2 * k][0], c[2 * k][1]), as_halves(c[2 * k][2], c[2 * k][3]),
                                   as_halves(c[2 * k + 1][0], c[2 * k + 1][1]), as_halves(c[2 * k + 1][2], c[2 * k + 1][3])};
#pragma unroll
      for (int n = 0; n < WIDE / 8; n += 2) {
        uint32_t right[4];
        load_turned(right, block_values + ((n + lane / 16) * PITCH + k * 16 + lane % 16) * 8);
        const uint32_t low[2] = {right[0], right[1]}, high[2] = {right[2], right[3]};
        multiply_add(sums[n], weights, low);
        multiply_add(sums[n + 1], weights, high);
      }
    }
  }

  __syncthreads();  // before `end` takes the place of keys and values
  float* end = shared.end + warp * 16 * END_PITCH;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float times = 1.f / sum_of_row(totals[i]);
#pragma unroll
    for (int n = 0; n < WIDE / 8; ++n) {
      float* to = end + (lane / 4 + 8 * i) * END_PITCH + n * 8 + lane % 4 * 2;
      to[0] = sums[n][2 * i] * times, to[1] = sums[n][2 * i + 1] * times;
    }
  }
  __syncwarp();
  constexpr int UNITS = WIDTH / V;
#pragma unroll 1
  for (int i = lane; i < 16 * UNITS; i += 32) {
    const int row = first_row + warp * 16 + i / UNITS, head = SHARED_BY == 1 ? 0 : row / rows;
    if (row >= all_rows) break;
    const int at[RANK] = {item, row - head * rows, (group * SHARED_BY + head) * WIDTH + i % UNITS * V};
    float v[V];
    EACH v[k] = end[i / UNITS * END_PITCH + i % UNITS * V + k];
    @EPILOGUE@
    store(y + (at[0] * rows + at[1]) * (HEADS * WIDTH) + at[2], v);
  }
}
