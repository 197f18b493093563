// The product of planes.cuh by wgmma: four warps compute 64 rows together. Behind planes.cuh, for sm_90a.
//
// The left operand goes through registers, so that its rows may lie anywhere, as those of a tap do. The right one is read
// where it lies: core matrices of 8 rows of a plane, 128 bytes apart along columns, a plane apart along depth.

// Of a matrix in planes, from `start` on, whose planes have PITCH rows: 16-byte units, no swizzle.
struct PlaneDescriptor {
  uint32_t low;
  __device__ __forceinline__ operator uint64_t() const { return uint64_t(8) << 32 | low; }
  // So many rows of planes further.
  __device__ __forceinline__ PlaneDescriptor moved(int rows) const { return {low + rows}; }
};
template <int PITCH>
__device__ __forceinline__ PlaneDescriptor plane_descriptor(const half* start) {
  return {(shared_address(start) & 0x3FFFF) >> 4 | PITCH << 16};
}

// Of a matrix from `start` on, a multiple of 1024 bytes, whose rows are 128 bytes, their units of 16 bytes exchanged by the
// three lowest bits of the row's number.
struct SwizzledDescriptor {
  uint32_t low;
  __device__ __forceinline__ operator uint64_t() const { return uint64_t(1 << 30 | 64) << 32 | low; }
  // So many units further.
  __device__ __forceinline__ SwizzledDescriptor moved(int units) const { return {low + units}; }
};
__device__ __forceinline__ SwizzledDescriptor swizzled_descriptor(const half* start) {
  return {(shared_address(start) & 0x3FFFF) >> 4};
}

#define SUMS_8(c, n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define SUMS_16(c, n) SUMS_8(c, n), SUMS_8(c, n + 1)
#define SUMS_32(c, n) SUMS_16(c, n), SUMS_16(c, n + 2)
#define SUMS_64(c, n) SUMS_32(c, n), SUMS_32(c, n + 4)
#define SUMS_96(c, n) SUMS_64(c, n), SUMS_32(c, n + 8)
#define SUMS_128(c, n) SUMS_64(c, n), SUMS_64(c, n + 8)
#define SUMS_256(c, n) SUMS_128(c, n), SUMS_128(c, n + 16)

// c (64 x N, floats) += a (64 x 16, in registers, or in planes) b (16 x N). Each warp has 16 of the rows, as of an mma.
#define MULTIPLY_GROUP(N, REGISTERS, A, B)                                                                          \
  __device__ __forceinline__ void multiply_group(float (&c)[N / 8][4], const uint32_t (&a)[4], uint64_t b) {         \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;\n"                                                            \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 " REGISTERS ", {" A "}, " B ", p, 1, 1, 0; }" \
                 : SUMS_##N(c, 0)                                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                             \
  }                                                                                                                 \
  __device__ __forceinline__ void multiply_group(float (&c)[N / 8][4], uint64_t a, uint64_t b) {                     \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 1, 0;\n"                                                            \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.f16.f16 " REGISTERS ", " FIRST_##N ", p, 1, 1, 0, 0; }" \
                 : SUMS_##N(c, 0)                                                                                   \
                 : "l"(a), "l"(b));                                                                                 \
  }                                                                                                                 \
  /* What the compiler knows of these registers ends here: products change them behind its back. */                 \
  __device__ __forceinline__ void hold(float (&c)[N / 8][4]) { asm volatile("" : SUMS_##N(c, 0)::"memory"); }

#define FIRST_16 "%8, %9"
#define REGISTERS_16 \
  "{%0,%1,%2,%3,%4,%5,%6,%7}"
MULTIPLY_GROUP(16, REGISTERS_16, "%8,%9,%10,%11", "%12")
#define FIRST_32 "%16, %17"
#define REGISTERS_32 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}"
MULTIPLY_GROUP(32, REGISTERS_32, "%16,%17,%18,%19", "%20")
#define FIRST_64 "%32, %33"
#define REGISTERS_64 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}"
MULTIPLY_GROUP(64, REGISTERS_64, "%32,%33,%34,%35", "%36")
#define FIRST_96 "%48, %49"
#define REGISTERS_96 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47}"
MULTIPLY_GROUP(96, REGISTERS_96, "%48,%49,%50,%51", "%52")
#define FIRST_128 "%64, %65"
#define REGISTERS_128 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}"
MULTIPLY_GROUP(128, REGISTERS_128, "%64,%65,%66,%67", "%68")
#define FIRST_256 "%128, %129"
#define REGISTERS_256 \
  "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15," \
  "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31," \
  "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47," \
  "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63," \
  "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79," \
  "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95," \
  "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111," \
  "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}"
MULTIPLY_GROUP(256, REGISTERS_256, "%128,%129,%130,%131", "%132")

// As multiply_planes: four warps that begin at a multiple of four take the same columns, and each of their sixteens is a
// part of 64 rows. All M are computed, `active` or not: products that only some groups issue would be kept apart.
template <int M, int N, int DEPTH, int A_PITCH, int B_PITCH>
__device__ __forceinline__ void multiply_planes_group(float (&c)[M][N][4], const half* a, const int (&rows)[M],
                                                      const half* b, int first, int active) {
  uint32_t left[M][DEPTH / 16][4];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k) load_left<A_PITCH>(left[m][k], a + 2 * k * A_PITCH * 8, rows[m]);
#pragma unroll
  for (int m = 0; m < M; ++m) hold(c[m]);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int k = 0; k < DEPTH / 16; ++k)
      multiply_group(c[m], left[m][k], plane_descriptor<B_PITCH>(b + (2 * k * B_PITCH + first) * 8));
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
  for (int m = 0; m < M; ++m) hold(c[m]);
}
