// CUTLASS's implicit-GEMM convolution with bias and ReLU: the kernel (PTX), or with PARAMETERS a program of the host
// that prints shared bytes, grid, threads and the bytes of Params; pointers are the marks below, to be replaced.
#include "cutlass/cutlass.h"
#include "cutlass/conv/kernel/default_conv2d_fprop.h"
#include "cutlass/epilogue/thread/linear_combination_relu.h"

using Half = cutlass::half_t;
using Layout = cutlass::layout::TensorNHWC;
using Epilogue = cutlass::epilogue::thread::LinearCombinationRelu<Half, 8, float, float>;
using Kernel = cutlass::conv::kernel::DefaultConv2dFprop<
    Half, Layout, Half, Layout, Half, Layout, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<64, 64, 32>, cutlass::gemm::GemmShape<32, 32, 32>, cutlass::gemm::GemmShape<16, 8, 16>,
    Epilogue, cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>, 3, cutlass::arch::OpMultiplyAdd,
    cutlass::conv::IteratorAlgorithm::kOptimized>::Kernel;

#ifndef PARAMETERS
extern "C" __global__ void __launch_bounds__(Kernel::kThreadCount)
    conv2d(__grid_constant__ const Kernel::Params params) {
  extern __shared__ int storage[];
  Kernel kernel;
  kernel(params, *reinterpret_cast<Kernel::SharedStorage*>(storage));
}
#else
#include <cstdio>
#include <cstdlib>

// Arguments, nine a convolution: images, height, width, channels, filters, filter height, filter width, padding, stride.
int main(int count, char** given) {
  for (int first = 1; first + 9 <= count; first += 9) {
    int v[9];
    for (int i = 0; i < 9; ++i) v[i] = std::atoi(given[first + i]);
    int n = v[0], h = v[1], w = v[2], c = v[3], k = v[4], r = v[5], s = v[6], pad = v[7], stride = v[8];
    int p = (h + 2 * pad - r) / stride + 1, q = (w + 2 * pad - s) / stride + 1;
    cutlass::conv::Conv2dProblemSize size(n, h, w, c, k, r, s, p, q, pad, pad, stride, stride, 1, 1,
                                          cutlass::conv::Mode::kCrossCorrelation);
    auto mark = [](unsigned long long bits) { return reinterpret_cast<Half*>(bits << 48); };
    Kernel::Arguments arguments(size, {mark(0x1111), Layout::packed({n, h, w, c})},
                                {mark(0x2222), Layout::packed({k, r, s, c})}, {mark(0x3333), Layout::Stride(0)},
                                {mark(0x4444), Layout::packed({n, p, q, k})}, {1.f, 1.f});
    Kernel::Params params(arguments, nullptr);
    dim3 grid = Kernel::ThreadblockSwizzle().get_grid_shape(params.grid_tiled_shape);
    std::printf("%zu %d %d %d %d ", sizeof(Kernel::SharedStorage), grid.x, grid.y, grid.z, Kernel::kThreadCount);
    auto bytes = reinterpret_cast<const unsigned char*>(&params);
    for (size_t i = 0; i < sizeof(params); ++i) std::printf("%02x", bytes[i]);
    std::printf("\n");
  }
}
#endif
