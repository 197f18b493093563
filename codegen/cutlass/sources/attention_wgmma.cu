// Attention in one kernel, by wgmma: weights are never stored. A block computes 64 rows of a head of k and v in each of its
// groups of four warps; rows are those of all heads of q that share the head, one head after the other.
//
//   q (once), BLOCK keys  --cp.async-->  scores, by wgmma -> scale, (+ mask) -> powers of 2 less the largest so far
//   BLOCK rows of v       --cp.async-->  powers, as halves in registers, times v, by wgmma, added to what there was, which
//                                        is made smaller where the largest has grown
//   at the end over the sum of powers -> operators -> y
//
// Four more warps copy. A group issues the scores of the next keys before it multiplies the powers of these by v, so that
// it makes powers of the next while the tensor cores multiply. Groups do not wait for each other.
//
// Rows of q, k and v lie in shared memory as panels of PANEL halves, whose units of 16 bytes are exchanged by the number of
// the row, as a swizzle of wgmma does. Elements of a head are the depth of the first product, and columns of the second.
constexpr int SIZE = @SIZE@, WIDTH = @WIDTH@, HEADS = @HEADS@, SHARED_BY = @SHARED_BY@;
constexpr int GROUPS = @GROUPS@, BLOCK = @BLOCK@, STAGES = @STAGES@, FIRST_SEES = @FIRST_SEES@;
constexpr int LAST = @LAST@;  // keys of the last block
constexpr bool MASKED = @MASKED@;
constexpr float SCALE = @SCALE@, LOG2E = 1.4426950409f;  // SCALE: of scores, times LOG2E
constexpr bool SCALED_FIRST = MASKED || !(SCALE > 0.f);  // else behind the largest
constexpr int GROUP_ROWS = 64, ROWS = GROUP_ROWS * GROUPS;
constexpr int MULTIPLIERS = 128 * GROUPS, LOADERS = 128, THREADS = MULTIPLIERS + LOADERS;
constexpr int KV_HEADS = HEADS / SHARED_BY, V = 8, RANK = 3;
constexpr int DEEP = rounded_up(SIZE, 16), TILES = BLOCK / 8, WIDE = WIDTH / 8;
static_assert(SIZE % 8 == 0 && WIDTH % 8 == 0 && BLOCK % 16 == 0, "");

// Rows of COLUMNS halves as panels of equal width, the narrowest that holds them, at most 64.
template <int COLUMNS, int ROWS>
struct Panels {
  static constexpr int PANEL = COLUMNS > 32 ? 64 : COLUMNS > 16 ? 32 : 16, COUNT = (COLUMNS + PANEL - 1) / PANEL;
  static constexpr int UNITS = PANEL / 8, PANEL_HALVES = ROWS * PANEL, HALVES = COUNT * PANEL_HALVES;
  // By how many places units of this row are exchanged.
  static __device__ __forceinline__ int turn(int row) { return row * UNITS / 8 % UNITS; }
  // For wgmma: eight rows further, and one panel further, which counts where columns are no depth.
  static __device__ __forceinline__ uint64_t descriptor(const half* start) {
    constexpr uint32_t SWIZZLE = UNITS == 8 ? 1 : UNITS == 4 ? 2 : 3, EIGHT_ROWS = PANEL, NEXT_PANEL = PANEL_HALVES / 8;
    const uint32_t low = (shared_address(start) & 0x3FFFF) >> 4 | NEXT_PANEL << 16;
    return uint64_t(SWIZZLE << 30 | EIGHT_ROWS) << 32 | low;
  }
};
using Queries = Panels<DEEP, ROWS>;
using Keys = Panels<DEEP, BLOCK>;
using Values = Panels<WIDTH, BLOCK>;

struct Shared {
  alignas(1024) half q[Queries::HALVES];
  alignas(1024) half keys[STAGES * Keys::HALVES];
  alignas(1024) half values[STAGES * Values::HALVES];
  alignas(1024) uint64_t keys_full[STAGES];
  uint64_t keys_empty[STAGES], values_full[STAGES], values_empty[STAGES];
};
static_assert(offsetof(Shared, values_empty) + sizeof(Shared::values_empty) == @SHARED@, "what the launch asks for");

@PRODUCTS@

// What the compiler knows of these registers ends here: products change them behind its back.
template <int N>
__device__ __forceinline__ void hold(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n) asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}
__device__ __forceinline__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void products_end() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
// COUNT rows of EACH halves, by the warps that copy; what there is not is zeros and not read. `at` gives where a row is.
template <typename To, int COUNT, int EACH_ROW, int DEPTH, typename At>
__device__ __forceinline__ void copy_rows(half* to, const half* from, int there, At at) {
  constexpr int UNITS = To::COUNT * To::UNITS, AT_ONCE = LOADERS / UNITS;
  const int thread = threadIdx.x - MULTIPLIERS, first = thread / UNITS, unit = thread % UNITS;
  if (unit * 8 >= DEPTH) return;
  to += unit / To::UNITS * To::PANEL_HALVES + first * To::PANEL + (unit % To::UNITS ^ To::turn(first)) * 8;
  from += unit * 8;
#pragma unroll 4
  for (int more = 0; more < COUNT; more += AT_ONCE) {
    const int row = first + more;
    if (COUNT % AT_ONCE != 0 && row >= COUNT) break;
    const bool inside = row < there && unit * 8 < EACH_ROW;
    copy_or_zero(to + more * To::PANEL, inside ? from + at(row) : from - unit * 8, inside);
  }
}

// What all threads of a block know: which rows are its own, and how many of all keys any of them sees.
struct Task {
  int rows, keys, all_rows, first_row, item, kv_head, blocks;
};

__device__ __forceinline__ void load_all(Shared& s, const Task& task, const half* q, const half* k, const half* v,
                                         const Layout& steps) {
  // They are there when the first keys are, which a thread copies behind them.
  copy_rows<Queries, ROWS, SIZE, DEEP>(s.q, q + task.item * steps.q.item, task.all_rows - task.first_row, [&](int row) {
    const int each = task.first_row + row, head = SHARED_BY == 1 ? 0 : each / task.rows;
    return (task.kv_head * SHARED_BY + head) * steps.q.head + (each - head * task.rows) * steps.q.row;
  });
  k += task.item * steps.k.item + task.kv_head * steps.k.head;
  v += task.item * steps.v.item + task.kv_head * steps.v.head;
  Stage<STAGES> stage;
#pragma unroll 1
  for (int block = 0; block < task.blocks; ++block) {
    const int first = block * BLOCK, there = task.keys - first;
    wait(s.keys_empty + stage.number, stage.parity ^ 1);
    copy_rows<Keys, BLOCK, SIZE, DEEP>(s.keys + stage.number * Keys::HALVES, k, there,
                                       [&](int row) { return (first + row) * steps.k.row; });
    copies_arrive(s.keys_full + stage.number);
    wait(s.values_empty + stage.number, stage.parity ^ 1);
    copy_rows<Values, BLOCK, WIDTH, WIDTH>(s.values + stage.number * Values::HALVES, v, there,
                                           [&](int row) { return (first + row) * steps.v.row; });
    copies_arrive(s.values_full + stage.number);
    stage.next();
  }
}

// Begins scores = q k^T of a group's rows and the keys of a stage. Registers and values of before may be used by products
// behind this.
__device__ __forceinline__ void begin_scores(Shared& s, const Stage<STAGES>& stage, uint64_t q, float (&scores)[TILES][4]) {
  const uint64_t keys = Keys::descriptor(s.keys + stage.number * Keys::HALVES);
  wait(s.keys_full + stage.number, stage.parity);
  fence_async();
  products_begin();
#pragma unroll
  for (int k = 0; k < DEEP / 8; k += 2) {
    const int panel = k / Keys::UNITS, unit = k % Keys::UNITS;
    const uint64_t left = q + panel * (Queries::PANEL_HALVES / 8) + unit, right = keys + panel * (Keys::PANEL_HALVES / 8) + unit;
    if (k == 0) multiply_first(scores, left, right); else multiply_next(scores, left, right);
  }
  products_end();
}
// Begins sums += weights v of a stage that is there, behind fences.
__device__ __forceinline__ void begin_sums(Shared& s, const Stage<STAGES>& stage, const uint32_t (&weights)[BLOCK / 16][4],
                                           float (&sums)[WIDE][4]) {
  const uint64_t values = Values::descriptor(s.values + stage.number * Values::HALVES);
#pragma unroll
  for (int k = 0; k < BLOCK / 16; ++k) multiply_weights(sums, weights[k], values + k * 2 * Values::PANEL);
  products_end();
}

// Of a lane's two rows: heads and places, the largest score so far, and a part of the sum of powers.
struct Rows {
  int heads[2], places[2];
  float largest[2], totals[2];
};

// Scores of the keys from `first` on to powers less the largest score so far. Powers of before are to be multiplied by
// `shrunk`.
__device__ __forceinline__ void make_powers(float (&c)[TILES][4], float (&shrunk)[2], Rows& rows, const Task& task, int first,
                                            const half* mask, const Steps& steps) {
  const int column = threadIdx.x % 4 * 2;
  if (SCALED_FIRST) {
#pragma unroll
    for (int n = 0; n < TILES; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) c[n][e] *= SCALE;
  }
  if (MASKED) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const half* of_row = mask + task.item * steps.item + rows.heads[i] * steps.head + rows.places[i] * steps.row + first;
#pragma unroll
      for (int n = 0; n < TILES; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (n * 8 + 8 <= LAST || first + n * 8 + column + e < task.keys)
            c[n][2 * i + e] += LOG2E * __half2float(of_row[n * 8 + column + e]);
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int sees = (FIRST_SEES ? min(task.keys, FIRST_SEES + rows.places[i]) : task.keys) - first;
    if (sees < BLOCK) {
#pragma unroll
      for (int n = 0; n < TILES; ++n)
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if ((FIRST_SEES || n * 8 + 8 > LAST) && n * 8 + column + e >= sees) c[n][2 * i + e] = -INFINITY;
    }
  }
  constexpr float TIMES = SCALED_FIRST ? 1.f : SCALE;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float now = rows.largest[i];
#pragma unroll
    for (int n = 0; n < TILES; ++n) now = fmaxf(now, fmaxf(c[n][2 * i], c[n][2 * i + 1]));
    now = largest_of_row(now);
    const float from = now == -INFINITY ? 0.f : now;  // rows that have seen nothing yet
    shrunk[i] = power_of_2((rows.largest[i] - from) * TIMES);
    rows.largest[i] = now;
    float total = 0.f;
#pragma unroll
    for (int n = 0; n < TILES; ++n)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& each = c[n][2 * i + e];
        each = power_of_2(fmaf(each, TIMES, -from * TIMES));
        total += each;
      }
    rows.totals[i] = rows.totals[i] * shrunk[i] + total;
  }
}
// Powers as the left operand of the next product.
__device__ __forceinline__ void make_weights(const float (&c)[TILES][4], uint32_t (&weights)[BLOCK / 16][4]) {
#pragma unroll
  for (int k = 0; k < BLOCK / 16; ++k) {
    weights[k][0] = as_halves(c[2 * k][0], c[2 * k][1]), weights[k][1] = as_halves(c[2 * k][2], c[2 * k][3]);
    weights[k][2] = as_halves(c[2 * k + 1][0], c[2 * k + 1][1]), weights[k][3] = as_halves(c[2 * k + 1][2], c[2 * k + 1][3]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, @SHARERS@)
    attention(half* __restrict__ y, const half* __restrict__ q, const half* __restrict__ k, const half* __restrict__ v,
              const half* __restrict__ mask, int rows, int keys, Layout steps@PARAMETERS@) {
  extern __shared__ __align__(1024) unsigned char storage[];
  Shared& s = *reinterpret_cast<Shared*>(storage);
  Task task = {rows, keys, SHARED_BY * rows};
  const int row_blocks = (task.all_rows + ROWS - 1) / ROWS;
  int rest = blockIdx.x;
  // Of rows that see more and more, those that see the most begin first.
  task.first_row = (FIRST_SEES ? row_blocks - 1 - rest % row_blocks : rest % row_blocks) * ROWS;
  rest /= row_blocks;
  task.kv_head = rest % KV_HEADS, task.item = rest / KV_HEADS;
  int seen = keys;  // by any row of the block
  if (FIRST_SEES) {
    const int first = task.first_row, last = min(first + ROWS, task.all_rows) - 1;
    seen = min(keys, FIRST_SEES + (first / rows == last / rows ? last % rows : rows - 1));
  }
  task.blocks = (seen + BLOCK - 1) / BLOCK;
  const int busy = min(GROUPS, (task.all_rows - task.first_row + GROUP_ROWS - 1) / GROUP_ROWS);  // groups that have rows

  if (threadIdx.x == MULTIPLIERS) {
    make_barriers(s.keys_full, STAGES, LOADERS);
    make_barriers(s.values_full, STAGES, LOADERS);
    make_barriers(s.keys_empty, STAGES, 4 * busy);
    make_barriers(s.values_empty, STAGES, 4 * busy);
  }
  __syncthreads();
  if (threadIdx.x >= MULTIPLIERS) {
    take_fewer_registers<@LOADER_REGISTERS@>();
    load_all(s, task, q, k, v, steps);
    return;
  }
  take_more_registers<@MULTIPLIER_REGISTERS@>();
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0), lane = threadIdx.x % 32, group = warp / 4;
  if (group >= busy) return;

  const int first_row = task.first_row + warp * 16 + lane / 4;
  Rows own;
#pragma unroll
  for (int i = 0; i < 2; ++i) {  // rows that there are not are like the last
    const int row = min(first_row + 8 * i, task.all_rows - 1), head = SHARED_BY == 1 ? 0 : row / rows;
    own.heads[i] = task.kv_head * SHARED_BY + head, own.places[i] = row - head * rows;
    own.largest[i] = -INFINITY, own.totals[i] = 0.f;
  }
  float sums[WIDE][4] = {}, scores[TILES][4], shrunk[2];
  uint32_t weights[BLOCK / 16][4];
  Stage<STAGES> next, now;  // of keys, of values
  const uint64_t queries = Queries::descriptor(s.q + group * GROUP_ROWS * Queries::PANEL);
  begin_scores(s, next, queries, scores);
  products_wait<0>();
  hold(scores);
  if (lane == 0) arrive(s.keys_empty + next.number);
  next.next();
  make_powers(scores, shrunk, own, task, 0, mask, steps.mask);
  make_weights(scores, weights);
  wait(s.values_full + now.number, now.parity);
  if (!@ONCE@) {
#pragma unroll 1
    for (int block = 1; block < task.blocks; ++block) {
      hold(sums);
      begin_scores(s, next, queries, scores);
      begin_sums(s, now, weights, sums);
      products_wait<1>();
      hold(scores);
      if (lane == 0) arrive(s.keys_empty + next.number);
      next.next();
      make_powers(scores, shrunk, own, task, block * BLOCK, mask, steps.mask);
      const int read = now.number;
      now.next();
      hold(scores);
      wait(s.values_full + now.number, now.parity);  // the assembler moves no powers behind this loop, but behind products
      products_wait<0>();
      hold(sums);
      if (lane == 0) arrive(s.values_empty + read);
#pragma unroll
      for (int n = 0; n < WIDE; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[n][e] *= shrunk[e / 2];
      make_weights(scores, weights);
    }
  }
  fence_async();
  hold(sums);
  products_begin();
  begin_sums(s, now, weights, sums);
  products_wait<0>();
  hold(sums);

  // A thread of a quad takes eight neighbouring columns of every 32.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first_row + 8 * i, head = own.heads[i] - task.kv_head * SHARED_BY;
    const float times = 1.f / sum_of_row(own.totals[i]);
#pragma unroll
    for (int n = 0; n < WIDE; n += 4) {
      uint32_t even[4] = {}, odd[4] = {};
#pragma unroll
      for (int each = 0; each < 4 && n + each < WIDE; ++each)
        even[each] = __float_as_uint(sums[n + each][2 * i] * times), odd[each] = __float_as_uint(sums[n + each][2 * i + 1] * times);
      turn_quads(even), turn_quads(odd);
      const int column = (n + lane % 4) * 8;
      if (row < task.all_rows && column < WIDTH) {
        const int at[RANK] = {task.item, row - head * rows, own.heads[i] * WIDTH + column};
        float v[V];
        EACH v[k] = __uint_as_float(k % 2 ? odd[k / 2] : even[k / 2]);
        @EPILOGUE@
        store(y + (at[0] * rows + at[1]) * (HEADS * WIDTH) + at[2], v);
      }
    }
  }
}
