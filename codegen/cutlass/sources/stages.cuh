// Stages in shared memory that some warps fill and others empty, handed over by mbarriers. Behind primitives.cuh, for sm_90.
//
// fill:  wait(empty), copies that arrive at full          empty:  wait(full), reads, arrive(empty)
//
// A phase of an mbarrier is complete after as many arrivals as it was made for, when the bytes that it expects are there.

// Which of COUNT stages is next, and the parity of the phase in which it is full. It was emptied before in the other one.
template <int COUNT>
struct Stage {
  int number = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void next() {
    if (++number == COUNT) number = 0, parity ^= 1;
  }
  __device__ __forceinline__ void skip(int stages) {
    const int sum = number + stages;
    number = sum % COUNT, parity ^= sum / COUNT & 1;
  }
};

__device__ __forceinline__ void make_barriers(uint64_t* barriers, int count, int arrivals) {
  for (int each = 0; each < count; ++each)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barriers + each)), "r"(arrivals) : "memory");
}
// By the thread that made them, before bulk copies use them.
__device__ __forceinline__ void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void arrive_expecting(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// An arrival when all that this thread has begun to copy is there.
__device__ __forceinline__ void copies_arrive(uint64_t* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
// Until the phase of this parity is complete; the one before the first counts as complete.
__device__ __forceinline__ void wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred P1;\nLAB_WAIT:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n"
      "@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// `bytes` (a multiple of 16, both ends aligned) from global to shared memory by one thread; they are counted at `barrier`.
__device__ __forceinline__ void copy_bulk(half* to, const half* from, int bytes, uint64_t* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// What was written to shared memory may be read by wgmma behind this: by whoever wrote, or by whoever sees it written.
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// To shared memory, without a branch.
__device__ __forceinline__ void store_if(bool there, half* to, half2 value) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p st.shared.b32 [%0], %1;\n}" ::"r"(shared_address(to)),
               "r"(reinterpret_cast<const uint32_t&>(value)), "r"(int(there))
               : "memory");
}

// The four registers of the threads of each quad as a matrix, turned: register k of thread q becomes register q of thread k.
__device__ __forceinline__ void turn_quads(uint32_t (&a)[4]) {
  const bool odd = threadIdx.x & 1, upper = threadIdx.x & 2;
#pragma unroll
  for (int k = 0; k < 4; k += 2) {
    const uint32_t other = __shfl_xor_sync(~0u, odd ? a[k] : a[k + 1], 1);
    if (odd) a[k] = other; else a[k + 1] = other;
  }
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const uint32_t other = __shfl_xor_sync(~0u, upper ? a[k] : a[k + 2], 2);
    if (upper) a[k] = other; else a[k + 2] = other;
  }
}

// Eight halves to global memory at once, which compilers take apart.
__device__ __forceinline__ void store_unit(half* to, const uint32_t (&bits)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(bits[0]), "r"(bits[1]),
               "r"(bits[2]), "r"(bits[3])
               : "memory");
}

// By all four warps of a group: they go on with so many registers of a thread. What some give back, others may take.
template <int REGISTERS>
__device__ __forceinline__ void take_fewer_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void take_more_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// Barrier NUMBER of so many threads of a block: some wait there, others only say that they have come.
template <int NUMBER, int THREADS>
__device__ __forceinline__ void meet() {
  asm volatile("bar.sync %0, %1;" ::"n"(NUMBER), "n"(THREADS) : "memory");
}
template <int NUMBER, int THREADS>
__device__ __forceinline__ void pass() {
  asm volatile("bar.arrive %0, %1;" ::"n"(NUMBER), "n"(THREADS) : "memory");
}
