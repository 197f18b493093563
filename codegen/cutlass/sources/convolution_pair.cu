// CUTLASS's back-to-back implicit GEMM (its example 13, both forms: values between are STORED in shared memory, or stay
// in registers) with epilogues of element-wise operators: a convolution, then a 1x1 convolution of all its channels.
#include "cutlass/cutlass.h"
#include "cutlass/conv/kernel/default_conv2d_fprop.h"
#include "cutlass/conv/kernel/default_conv2d_fprop_with_broadcast.h"
#include "kernel/@FORM@.h"
@EPILOGUE@
using Half = cutlass::half_t;
using Layout = cutlass::layout::TensorNHWC;
using Swizzle = cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<1>;

// What the second convolution reads: sums in floats with a bias of halves, then operators, rounded once.
struct Between {
  static int const kCount = 4;
  static auto const kScale = cutlass::epilogue::thread::ScaleType::OnlyAlphaScaling;
  using ElementOutput = Half;
  using ElementAccumulator = float;
  using ElementCompute = Half;  // in which CUTLASS loads the bias
  using FragmentOutput = cutlass::Array<Half, kCount>;
  using FragmentAccumulator = cutlass::Array<float, kCount>;
  using FragmentScaleBias = cutlass::Array<Half, kCount>;

  static CUTLASS_DEVICE float of(float v) {
    @BETWEEN@
    return v;
  }
  CUTLASS_DEVICE bool is_source_needed() const { return false; }
  CUTLASS_DEVICE FragmentOutput operator()(FragmentAccumulator const& sums, FragmentScaleBias const&,
                                           FragmentScaleBias const& bias) const {
    FragmentOutput made;
    CUTLASS_PRAGMA_UNROLL
    for (int k = 0; k < kCount; ++k) made[k] = Half(of(sums[k] + float(bias[k])));
    return made;
  }
};

using Parts = cutlass::conv::kernel::DefaultB2bConv2dFprop<
    Half, Layout, Half, Layout, Half, Layout, float, cutlass::arch::OpClassTensorOp, cutlass::arch::Sm80,
    cutlass::gemm::GemmShape<@ROWS@, @HIDDEN@, 32>, cutlass::gemm::GemmShape<@ROWS@, @COLUMNS@, 32>,
    cutlass::gemm::GemmShape<@WARP@>, cutlass::gemm::GemmShape<@WARP_AFTER@>, cutlass::gemm::GemmShape<16, 8, 16>, Between,
    Epilogue<@WIDTH@>, Swizzle, @STAGES@, cutlass::arch::OpMultiplyAdd, cutlass::conv::IteratorAlgorithm::kOptimized, @STORED@>;

struct Pair {
  using Mma = Parts::B2bMma;
  using Tail = cutlass::conv::kernel::detail::DefaultConvEpilogueWithBroadcastTensorOp<
      cutlass::arch::Sm80, Mma::Shape1, Mma::Policy1::Operator, 1, Half, Half, Half, Epilogue<@WIDTH@>, @WIDTH@>::Epilogue;
  using Size = cutlass::conv::Conv2dProblemSize;
  static int const kThreadCount = 32 * Mma::WarpCount0::kCount;
  static_assert(Mma::WarpCount0::kCount == Mma::WarpCount1::kCount, "both products are the same warps'");

  struct Arguments {
    Size first, second;
    Half *image, *filters, *bias, *filters_after, *bias_after, *source, *result;
  };
  struct Params {
    Size first, second;
    int steps;
    Mma::IteratorA0::Params image_steps;
    Mma::IteratorB0::Params filters_steps;
    Mma::IteratorB1::Params filters_after_steps;
    Tail::OutputTileIterator::Params result_steps;
    Half *image, *filters, *bias, *filters_after, *bias_after, *source, *result;

    CUTLASS_HOST_DEVICE Params(Arguments const& of, int*)
        : first(of.first),
          second(of.second),
          steps(cutlass::conv::implicit_gemm_k_iterations(cutlass::conv::Operator::kFprop, 32, of.first)),
          image_steps(Mma::IteratorA0::getParams(of.first, dense(of.first.C, of.first.W, of.first.H))),
          filters_steps(of.first, dense(of.first.C, of.first.S, of.first.R)),
          filters_after_steps(of.second, dense(of.second.C, 1, 1)),
          result_steps(cutlass::layout::RowMajor(of.second.K)),
          image(of.image),
          filters(of.filters),
          bias(of.bias),
          filters_after(of.filters_after),
          bias_after(of.bias_after),
          source(of.source),
          result(of.result) {}
    static CUTLASS_HOST_DEVICE Layout dense(int channels, int width, int height) {
      return Layout(channels, channels * width, channels * width * height);
    }
  };
  union SharedStorage {
    Mma::B2bMmaSharedStorage main_loop;
    Tail::SharedStorage tail;
  };

  CUTLASS_DEVICE void operator()(Params const& p, SharedStorage& storage) {
    int const thread = threadIdx.x, warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), lane = threadIdx.x % 32;
    cutlass::MatrixCoord const rows(blockIdx.x * Mma::Shape0::kM, 0), start(0, 0);
    Mma::IteratorA0 image(p.image_steps, p.first, p.image, thread, rows);
    Mma::IteratorB0 filters(p.filters_steps, p.first, p.filters, thread, start);
    Mma::IteratorB1 filters_after(p.filters_after_steps, p.second, p.filters_after, thread, start);
    Mma::IteratorAccumulatorScaleBias bias(p.bias, {1, p.first.K}, thread, warp, start);
    Mma::FragmentC0 none;
    Mma::FragmentC1 sums;
    none.clear();
    sums.clear();
    Mma(storage.main_loop, thread, warp, lane)(p.steps, sums, image, filters, bias, bias, filters_after, none, Between());
    cutlass::MatrixCoord const extent(p.second.N * p.second.P * p.second.Q, p.second.K);
    Tail::OutputTileIterator result(p.result_steps, p.result, extent, thread, rows);
    Tail::OutputTileIterator source(p.result_steps, p.source, extent, thread, rows);
    Tail::TensorTileIterator::Params const no_steps(cutlass::layout::RowMajor(0));
    Tail::TensorTileIterator unused(no_steps, nullptr, extent, thread, rows);
    Tail(storage.tail, thread, warp, lane)(Epilogue<@WIDTH@>({1.f, 1.f}), p.bias_after, result, sums, source, unused, extent, rows);
  }
};

extern "C" __global__ void __launch_bounds__(Pair::kThreadCount)
    convolution_pair(__grid_constant__ const Pair::Params params) {
  extern __shared__ __align__(128) unsigned char storage[];
  Pair pair;
  pair(params, *reinterpret_cast<Pair::SharedStorage*>(storage));
}

#include "parameters.cuh"

// Images, height, width, channels, channels between, filter height and width, output height and width, padding, stride
// and dilation (height, width each), channels of the result.
CUTLASS_HOST_DEVICE void describe(Numbers const& v, int* head, unsigned char* bytes) {
  auto const cross = cutlass::conv::Mode::kCrossCorrelation;
  Pair::Size first(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12], v[13], v[14], cross);
  Pair::Size second(v[0], v[7], v[8], v[4], v[15], 1, 1, v[7], v[8], 0, 0, 1, 1, 1, 1, cross);
  Pair::Arguments arguments{first, second, mark<Half>(v, 0), mark<Half>(v, 1), mark<Half>(v, 2), mark<Half>(v, 3),
                            mark<Half>(v, 4), mark<Half>(v, 5), mark<Half>(v, 6)};
  tell_launch<Pair>(head, bytes, arguments, [](auto const& p) {
    return dim3((p.second.N * p.second.P * p.second.Q + Pair::Mma::Shape0::kM - 1) / Pair::Mma::Shape0::kM, 1, 1);
  });
}
