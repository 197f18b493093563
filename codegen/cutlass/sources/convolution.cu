// CUTLASS's implicit-GEMM convolution with an epilogue of element-wise operators: the kernel, and one
// that makes its parameters.
#include "cutlass/cutlass.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
#include "cutlass/epilogue/thread/linear_combination_residual_block.h"
@EPILOGUE@
using Half = cutlass::half_t;
using Layout = cutlass::layout::TensorNHWC;
using Kernel = cutlass::conv::kernel::DefaultConv2dFpropWithBroadcast<
    Half, Layout, Half, Layout, Half, Layout, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<@TILE@>, cutlass::gemm::GemmShape<@WARP@>, cutlass::gemm::GemmShape<16, 8, 16>,
    Epilogue<@WIDTH@>, cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<@SWIZZLE@>, @STAGES@,
    cutlass::arch::OpMultiplyAdd, cutlass::conv::IteratorAlgorithm::kOptimized, cutlass::conv::StrideSupport::kStrided,
    @ALIGNMENT@, @ALIGNMENT@>::Kernel;

extern "C" __global__ void __launch_bounds__(Kernel::kThreadCount)
    convolution(__grid_constant__ const Kernel::Params params) {
  extern __shared__ __align__(128) unsigned char storage[];
  Kernel kernel;
  kernel(params, *reinterpret_cast<Kernel::SharedStorage*>(storage));
}

#include "parameters.cuh"

// images, height, width, channels, filters, filter height and width, output height and width, padding, stride and
// dilation (height, width each), elements from one pixel to the next of image and result, from one row of the image to the
// next, whether there is a bias.
CUTLASS_HOST_DEVICE void describe(Numbers const& v, int* head, unsigned char* bytes) {
  const int n = v[0], h = v[1], w = v[2], c = v[3], k = v[4], r = v[5], s = v[6], p = v[7], q = v[8];
  cutlass::conv::Conv2dProblemSize size(n, h, w, c, k, r, s, p, q, v[9], v[10], v[11], v[12], v[13], v[14],
                                        cutlass::conv::Mode::kCrossCorrelation);
  const int in = v[15], out = v[16], row = v[17];
  const Layout image(in, row, row * h), filters(c, c * s, c * s * r), result(out, out * q, out * q * p);
  Kernel::Arguments arguments(size, {mark<Half>(v, 0), image}, {mark<Half>(v, 1), filters}, {mark<Half>(v, 2), result},
                              {mark<Half>(v, 3), result}, {1.f, 1.f}, cutlass::conv::SplitKMode::kSerial,
                              v[18] ? mark<Half>(v, 4) : nullptr, nullptr, 0, 0);
  tell_launch<Kernel>(head, bytes, arguments, [](auto const& params) {
    return Kernel::ThreadblockSwizzle().get_grid_shape(params.grid_tiled_shape);
  });
}
