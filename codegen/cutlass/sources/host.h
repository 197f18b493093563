// For programs of the host that print launches: their numbers, marks in place of addresses, the line that they print.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

struct Numbers {
  int values[32] = {};
  Numbers(int count, char** given, int wanted) {
    if (count != wanted + 1 || wanted > 32) {
      std::fprintf(stderr, "%d numbers are needed\n", wanted);
      std::exit(2);
    }
    for (int i = 0; i < wanted; ++i) values[i] = std::atoi(given[i + 1]);
  }
  int operator[](int i) const { return values[i]; }
};

// Stands in the parameters for address number i.
template <typename T>
T* mark(unsigned long long i) {
  return reinterpret_cast<T*>(0x5e5e000000000000ull + ((i + 1) << 40));
}

// Shared bytes, grid, threads, parameters; those are made in cleared memory, so that equal launches print equal bytes.
template <typename Kernel, typename Arguments, typename Grid>
void print_launch(Arguments const& arguments, Grid grid_of) {
  alignas(64) static unsigned char bytes[sizeof(typename Kernel::Params)];
  auto* params = new (bytes) typename Kernel::Params(arguments, nullptr);
  const dim3 grid = grid_of(*params);
  std::printf("%zu %u %u %u %d ", sizeof(typename Kernel::SharedStorage), grid.x, grid.y, grid.z, Kernel::kThreadCount);
  for (unsigned char byte : bytes) std::printf("%02x", byte);
  std::printf("\n");
}
