// CUTLASS 3's wgmma product with a cp.async mainloop: the kernel (PTX), or with PARAMETERS a program of the host that
// prints shared bytes, grid, threads and the bytes of Params; pointers are the marks below, to be replaced.
#include "cutlass/cutlass.h"
#include "cutlass/kernel_hardware_info.hpp"
#include "cutlass/gemm/collective/collective_builder.hpp"
#include "cutlass/epilogue/collective/collective_builder.hpp"
#include "cutlass/gemm/kernel/gemm_universal.hpp"

using Half = cutlass::half_t;
using Tile = cute::Shape<cute::_128, cute::_64, cute::_64>;
using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
using Epilogue = cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster,
    cutlass::epilogue::collective::EpilogueTileAuto, float, float, Half, cutlass::layout::RowMajor, 4, Half,
    cutlass::layout::RowMajor, 4, cutlass::epilogue::NoSmemWarpSpecialized>::CollectiveOp;
using Mainloop = cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Half, cutlass::layout::RowMajor, 4, Half,
    cutlass::layout::ColumnMajor, 4, float, Tile, Cluster, cutlass::gemm::collective::StageCount<3>,
    cutlass::gemm::KernelCpAsyncWarpSpecialized>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;

#ifndef PARAMETERS
extern "C" __global__ void __launch_bounds__(Kernel::MaxThreadsPerBlock, 1)
    gemm_sm90(__grid_constant__ const Kernel::Params params) {
  extern __shared__ char storage[];
  Kernel kernel;
  kernel(params, storage);
}
#else
#include <cstdio>
#include <cstdlib>

// Arguments, three a product: rows, columns, depth.
int main(int count, char** given) {
  for (int first = 1; first + 3 <= count; first += 3) {
    int m = std::atoi(given[first]), n = std::atoi(given[first + 1]), k = std::atoi(given[first + 2]);
    auto mark = [](unsigned long long bits) { return reinterpret_cast<Half*>(bits << 48); };
    auto packed = [](int pitch) { return cute::make_stride(int64_t(pitch), cute::_1{}, int64_t(0)); };
    Kernel::Arguments arguments{cutlass::gemm::GemmUniversalMode::kGemm,
                                {m, n, k, 1},
                                {mark(0x1111), packed(k), mark(0x2222), packed(k)},
                                {{1.f, 1.f}, mark(0x3333), packed(n), mark(0x4444), packed(n)}};
    if (!Kernel::can_implement(arguments)) {
      std::printf("refused\n");
      continue;
    }
    Kernel::Params params = Kernel::to_underlying_arguments(arguments, nullptr);
    dim3 grid = Kernel::get_grid_shape(params), block = Kernel::get_block_shape();
    std::printf("%d %d %d %d %d ", Kernel::SharedStorageSize, grid.x, grid.y, grid.z, block.x);
    auto bytes = reinterpret_cast<const unsigned char*>(&params);
    for (size_t i = 0; i < sizeof(params); ++i) std::printf("%02x", bytes[i]);
    std::printf("\n");
  }
}
#endif
