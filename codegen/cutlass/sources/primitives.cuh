// Instructions that C++ has no words for: copies into shared memory behind one's back, and products of small matrices.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes from global to shared memory, both aligned; they are there after copies_done and a barrier.
__device__ __forceinline__ void copy_async(half* to, const half* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copies_done() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Four 8 x 8 matrices of halves; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
// Two of them; lanes 0 to 15 give addresses.
__device__ __forceinline__ void load_matrices(uint32_t (&r)[2], const half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}

// c (16 x 8, floats) += a (16 x 16) b (16 x 8). Lane l has of c rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the next.
__device__ __forceinline__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// The operand rows first to first + 15, depth k to k + 15 of a matrix in shared memory whose rows are PITCH apart.
template <int PITCH>
__device__ __forceinline__ void load_rows(uint32_t (&a)[4], const half* matrix, int first, int k) {
  const int lane = threadIdx.x % 32;
  load_matrices(a, matrix + (first + lane % 16) * PITCH + k + lane / 16 * 8);
}
// The operand columns first to first + 7, depth k to k + 15; a column's depth is contiguous.
template <int PITCH>
__device__ __forceinline__ void load_columns(uint32_t (&b)[2], const half* matrix, int first, int k) {
  const int lane = threadIdx.x % 16;
  load_matrices(b, matrix + (first + lane % 8) * PITCH + k + lane / 8 * 8);
}
