// Two matrix products in one kernel; what lies between never is a whole matrix.
//
// A block computes ROWS rows, all columns. Columns between go through in blocks of BLOCK:
//
//   a (once) -> times BLOCK columns of the first weights -> bias, operators -> planes
//            -> times BLOCK rows of the second weights into registers, which add up over the blocks
//            -> bias, operators, (+ a map), operators -> y
//
// Weights lie with their depth contiguous. They are one stream of steps of DEPTH, STAGES of which are on their way.
constexpr int IN = @IN@, BETWEEN = @BETWEEN@, OUT = @OUT@, ROWS = @ROWS@, BLOCK = @BLOCK@, COLUMNS = @COLUMNS@;
constexpr int WARPS = @WARPS@, DOWN = @DOWN@, DEPTH = @DEPTH@, STAGES = @STAGES@;
constexpr bool GROUPED = @GROUPED@;  // four warps compute together, by wgmma
constexpr int THREADS = 32 * WARPS, ACROSS = WARPS / DOWN, M_EACH = ROWS / 16 / DOWN;
constexpr int N_BETWEEN = BLOCK / ACROSS / 8, N_OUT = COLUMNS / ACROSS / 8;  // eights of columns of a warp
constexpr int CHUNKS = rounded_up(IN, DEPTH) / DEPTH, STEPS_AFTER = BLOCK / DEPTH, PER_BLOCK = CHUNKS + STEPS_AFTER;
constexpr int BLOCKS = rounded_up(BETWEEN, BLOCK) / BLOCK, STEPS = BLOCKS * PER_BLOCK;
constexpr int WIDEST = BLOCK > COLUMNS ? BLOCK : COLUMNS;
constexpr int A_PITCH = copied_pitch(ROWS, DEPTH), WEIGHTS_PITCH = copied_pitch(WIDEST, DEPTH), WEIGHTS = WEIGHTS_PITCH * DEPTH;
static_assert(IN % 8 == 0 && BETWEEN % 8 == 0 && OUT % 8 == 0 && OUT <= COLUMNS && BLOCK % DEPTH == 0, "");
static_assert(ROWS % (16 * DOWN) == 0 && BLOCK % (16 * ACROSS) == 0 && COLUMNS % (16 * ACROSS) == 0 && STAGES >= 2, "");

struct Shared {
  half weights[STAGES * WEIGHTS];
  half a[CHUNKS * DEPTH * A_PITCH];
  half between[BLOCK * ROWS];
};
static_assert(sizeof(Shared) == @SHARED@, "what the launch asks for");

@OPERATORS@

extern "C" __global__ void __launch_bounds__(THREADS, @SHARERS@)
    product_pair(const half* __restrict__ a, const half* __restrict__ first, const half* __restrict__ first_bias,
                 const half* __restrict__ second, const half* __restrict__ second_bias, const half* __restrict__ source,
                 half* __restrict__ y, int rows) {
  extern __shared__ __align__(128) unsigned char storage[];
  Shared& s = *reinterpret_cast<Shared*>(storage);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, down = warp % DOWN, across = warp / DOWN;
  const int first_row = blockIdx.x * ROWS, there = rows - first_row;
  a += size_t(first_row) * IN;

  const auto start = [&](int step) {
    const int block = step / PER_BLOCK, at = step % PER_BLOCK, left = BETWEEN - block * BLOCK;
    half* to = s.weights + step % STAGES * WEIGHTS;
    if (step < STEPS) {
      if (at < CHUNKS) {
        const int k = at * DEPTH;
        copy_into_planes<WEIGHTS_PITCH, BLOCK, DEPTH, THREADS>(to, first + size_t(block) * BLOCK * IN + k, IN, left, IN - k);
        if (block == 0) copy_into_planes<A_PITCH, ROWS, DEPTH, THREADS>(s.a + k * A_PITCH, a + k, IN, there, IN - k);
      } else {
        const int k = (at - CHUNKS) * DEPTH;
        copy_into_planes<WEIGHTS_PITCH, COLUMNS, DEPTH, THREADS>(to, second + block * BLOCK + k, BETWEEN, OUT, left - k);
      }
    }
    copies_end();
  };
  // The weights of a step are there, and nobody reads those of the step before any more.
  const auto arrive = [&](int step) {
    copies_wait<STAGES - 2>();
    if (GROUPED) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads what was copied
    __syncthreads();
    start(step + STAGES - 1);
    return s.weights + step % STAGES * WEIGHTS;
  };
#pragma unroll
  for (int step = 0; step < STAGES - 1; ++step) start(step);

  int lane_rows[M_EACH];
#pragma unroll
  for (int m = 0; m < M_EACH; ++m) lane_rows[m] = (down + m * DOWN) * 16 + lane % 16;
  float sums[M_EACH][N_OUT][4] = {};
  int step = 0;
#pragma unroll 1
  for (int block = 0; block < BLOCKS; ++block) {
    float c[M_EACH][N_BETWEEN][4] = {};
#pragma unroll 1
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const half* weights = arrive(step++);
      @MULTIPLY@<M_EACH, N_BETWEEN, DEPTH, A_PITCH, WEIGHTS_PITCH>(c, s.a + chunk * DEPTH * A_PITCH, lane_rows, weights,
                                                                  across * N_BETWEEN * 8, M_EACH);
    }
#pragma unroll
    for (int m = 0; m < M_EACH; ++m)
#pragma unroll
      for (int half_tile = 0; half_tile < 2; ++half_tile)
#pragma unroll
        for (int n = 0; n < N_BETWEEN; ++n) {
          const int row = (down + m * DOWN) * 16 + half_tile * 8 + lane / 4;
          const int column = (across * N_BETWEEN + n) * 8 + lane % 4 * 2, channel = block * BLOCK + column;
          float2 value = make_float2(0.f, 0.f);
          if (channel < BETWEEN) {
            const float2 bias = __half22float2(*reinterpret_cast<const half2*>(first_bias + channel));
            value = make_float2(after_first(c[m][n][2 * half_tile] + bias.x), after_first(c[m][n][2 * half_tile + 1] + bias.y));
          }
          store_pair<ROWS>(s.between, row, column, value);
        }
#pragma unroll 1
    for (int each = 0; each < STEPS_AFTER; ++each) {
      const half* weights = arrive(step++);
      @MULTIPLY@<M_EACH, N_OUT, DEPTH, ROWS, WEIGHTS_PITCH>(sums, s.between + each * DEPTH * ROWS, lane_rows, weights,
                                                           across * N_OUT * 8, M_EACH);
    }
  }

#pragma unroll
  for (int m = 0; m < M_EACH; ++m)
#pragma unroll
    for (int half_tile = 0; half_tile < 2; ++half_tile) {
      const int row = (down + m * DOWN) * 16 + half_tile * 8 + lane / 4;
      if (row >= there) continue;
#pragma unroll
      for (int n = 0; n < N_OUT; ++n) {
        const int column = (across * N_OUT + n) * 8 + lane % 4 * 2;
        if (column >= OUT) continue;
        const size_t at = size_t(first_row + row) * OUT + column;
        const float2 bias = __half22float2(*reinterpret_cast<const half2*>(second_bias + column));
        float2 value = make_float2(sums[m][n][2 * half_tile] + bias.x, sums[m][n][2 * half_tile + 1] + bias.y);
        value = make_float2(before_sum(value.x), before_sum(value.y));
        if (@SOURCE@) {
          const float2 added = __half22float2(*reinterpret_cast<const half2*>(source + at));
          value = make_float2(value.x + added.x, value.y + added.y);
        }
        *reinterpret_cast<half2*>(y + at) = __floats2half2_rn(after_sum(value.x), after_sum(value.y));
      }
    }
}
