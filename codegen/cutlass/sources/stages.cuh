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
};

__device__ __forceinline__ void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
// By the thread that made them, before others use them.
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

// A barrier of the first THREADS threads of a block.
template <int THREADS>
__device__ __forceinline__ void first_threads_meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}
