// For kernels whose parameter block only C++ knows how to make: a second kernel of the same source, `parameters`, makes
// the blocks from plain numbers, with marks in place of addresses, one launch a block of its grid. It runs while a
// network is compiled, never with it.
#include <new>

constexpr int MOST_NUMBERS = 32, MOST_BYTES = 4096, HEAD = 6;

// `marks` are the highest bits of what stands for addresses: blocks made with two of them differ there alone.
struct Numbers {
  int v[MOST_NUMBERS];
  unsigned marks;
  CUTLASS_HOST_DEVICE int operator[](int i) const { return v[i]; }
};

// The source's own: calls `tell_launch` with the arguments that these numbers stand for.
CUTLASS_HOST_DEVICE void describe(Numbers const& v, int* head, unsigned char* bytes);

extern "C" __global__ void parameters(const Numbers* all, int* heads, unsigned char* bytes) {
  describe(all[blockIdx.x], heads + HEAD * blockIdx.x, bytes + MOST_BYTES * blockIdx.x);
}

// Stands in the parameters for address number i.
template <typename T>
CUTLASS_HOST_DEVICE T* mark(Numbers const& v, unsigned long long i) {
  return reinterpret_cast<T*>((static_cast<unsigned long long>(v.marks) << 48) + ((i + 1) << 40));
}

// To `head` bytes of parameters, shared bytes, threads and the grid; to `bytes`, which are zero before, the parameters.
template <typename Kernel, typename Arguments, typename Grid>
CUTLASS_HOST_DEVICE void tell_launch(int* head, unsigned char* bytes, Arguments const& arguments, Grid grid_of) {
  using Params = typename Kernel::Params;
  static_assert(sizeof(Params) <= MOST_BYTES, "room for a parameter block");
  auto* params = new (bytes) Params(arguments, nullptr);
  const dim3 grid = grid_of(*params);
  head[0] = sizeof(Params), head[1] = sizeof(typename Kernel::SharedStorage), head[2] = Kernel::kThreadCount;
  head[3] = grid.x, head[4] = grid.y, head[5] = grid.z;
}
