// Kernels of a network follow each other without a gap from Hopper on: the next one may start while this one runs, as soon
// as all blocks of this one have come here, and waits here itself until all that came before is done and in memory. So it
// must be the first statement of a kernel: before it nothing is read but parameters.
#ifndef AFTER_PREDECESSORS
#define AFTER_PREDECESSORS
__device__ __forceinline__ void after_predecessors() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#endif
