// For kernels whose parameter block only C++ knows how to make: a second kernel of the same source, `parameters`, makes
// the blocks from plain numbers, with marks in place of addresses, one launch a block of its grid. It runs while a
// network is compiled, never with it.
#include <new>

constexpr int MOST_NUMBERS = 32, MOST_BYTES = 4096, HEAD = 6;

struct Numbers {
  int v[MOST_NUMBERS];
  __device__ int operator[](int i) const { return v[i]; }
};

// Stands in the parameters for address number i.
template <typename T>
__device__ T* mark(unsigned long long i) {
  return reinterpret_cast<T*>(0x5e5e000000000000ull + ((i + 1) << 40));
}

// To this block's `heads` bytes of parameters, shared bytes, threads and the grid; to its `bytes`, which are zero before,
// the parameters.
template <typename Kernel, typename Arguments, typename Grid>
__device__ void tell_launch(int* heads, unsigned char* bytes, Arguments const& arguments, Grid grid_of) {
  using Params = typename Kernel::Params;
  static_assert(sizeof(Params) <= MOST_BYTES, "room for a parameter block");
  auto* params = new (bytes + MOST_BYTES * blockIdx.x) Params(arguments, nullptr);
  const dim3 grid = grid_of(*params);
  int* head = heads + HEAD * blockIdx.x;
  head[0] = sizeof(Params), head[1] = sizeof(typename Kernel::SharedStorage), head[2] = Kernel::kThreadCount;
  head[3] = grid.x, head[4] = grid.y, head[5] = grid.z;
}
