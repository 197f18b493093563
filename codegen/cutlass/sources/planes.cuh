// Matrices of halves in shared memory, rows by depth, as planes of 8 of depth: [depth / 8][PITCH rows][8 halves].
//
// A row of a plane is 16 bytes; eight neighbouring rows are 128 contiguous bytes, which is what ldmatrix reads without
// conflicts and a core matrix of wgmma without swizzle. Rows are pixels or output channels. Behind common.cuh and
// primitives.cuh.
__host__ __device__ constexpr int rounded_up(int n, int to) { return (n + to - 1) / to * to; }

// Rows of a plane such that threads that copy the DEPTH / 8 units of a row into as many planes hit different banks.
__host__ __device__ constexpr int copied_pitch(int rows, int depth) {
  const int apart = depth >= 64 ? 1 : 64 / depth;
  return (rows + 7 - apart) / 8 * 8 + apart;
}

// 16 bytes from global to shared memory, or zeros where `there` is false: `from` is then not read.
__device__ __forceinline__ void copy_or_zero(half* to, const half* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(there ? 16 : 0)
               : "memory");
}
// Copies since the last of these are a group; `PENDING` of the newest groups may be on their way after the wait.
__device__ __forceinline__ void copies_end() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ROWS rows of DEPTH halves into planes, by all THREADS: rows from `there` on, and depth from `deep` on, are zeros and not
// read. A thread copies the same unit of every so many rows, so that its addresses are one and constants.
template <int PITCH, int ROWS, int DEPTH, int THREADS>
__device__ __forceinline__ void copy_into_planes(half* to, const half* from, size_t from_pitch, int there, int deep) {
  constexpr int UNITS = DEPTH / 8, AT_ONCE = THREADS / UNITS;
  static_assert(THREADS % UNITS == 0, "");
  const int row = threadIdx.x / UNITS, unit = threadIdx.x % UNITS;
  if (unit * 8 >= deep) there = 0;
  from += row * from_pitch + unit * 8, to += (unit * PITCH + row) * 8;
#pragma unroll
  for (int first = 0; first < ROWS; first += AT_ONCE)
    if (ROWS % AT_ONCE == 0 || first + row < ROWS)
      copy_or_zero(to + first * 8, from + first * from_pitch, first + row < there);
}

// The left operand of mma, 16 rows by depth 16. `row` is where this lane's row lies, that of number lane % 16.
template <int PITCH>
__device__ __forceinline__ void load_left(uint32_t (&a)[4], const half* planes, int row) {
  load_matrices(a, planes + (threadIdx.x % 32 / 16 * PITCH + row) * 8);
}
// The right operands of two of them, columns first to first + 15 (rows of the planes) by depth 16.
template <int PITCH>
__device__ __forceinline__ void load_right(uint32_t (&b)[4], const half* planes, int first) {
  const int lane = threadIdx.x % 32;
  load_matrices(b, planes + (lane / 8 % 2 * PITCH + first + lane / 16 * 8 + lane % 8) * 8);
}

// c += a b, a warp's tile of 16 M rows by 8 N columns, over DEPTH. `rows` are the lane's rows in a for each sixteen,
// `first` the first column in b; sixteens from `active` on are left out.
template <int M, int N, int DEPTH, int A_PITCH, int B_PITCH>
__device__ __forceinline__ void multiply_planes(float (&c)[M][N][4], const half* a, const int (&rows)[M], const half* b,
                                                int first, int active) {
  static_assert(N % 2 == 0 && DEPTH % 16 == 0, "");
#pragma unroll
  for (int k = 0; k < DEPTH / 8; k += 2) {
    uint32_t left[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m)
      if (m < active) load_left<A_PITCH>(left[m], a + k * A_PITCH * 8, rows[m]);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      uint32_t right[4];
      load_right<B_PITCH>(right, b + k * B_PITCH * 8, first + n * 8);
      const uint32_t low[2] = {right[0], right[1]}, high[2] = {right[2], right[3]};
#pragma unroll
      for (int m = 0; m < M; ++m)
        if (m < active) {
          multiply_add(c[m][n], left[m], low);
          multiply_add(c[m][n + 1], left[m], high);
        }
    }
  }
}

// Two neighbouring columns of a result, an even one first, into planes.
template <int PITCH>
__device__ __forceinline__ void store_pair(half* planes, int row, int column, float2 value) {
  *reinterpret_cast<half2*>(planes + (column / 8 * PITCH + row) * 8 + column % 8) =
      __floats2half2_rn(value.x, value.y);
}
