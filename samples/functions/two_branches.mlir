#map = affine_map<(d0, d1, d2) -> (d0, d2)>
#map1 = affine_map<(d0, d1, d2) -> (d2, d1)>
#map2 = affine_map<(d0, d1, d2) -> (d0, d1)>
#map3 = affine_map<(d0, d1) -> (d0, d1)>
"builtin.module"() ({
  "func.func"() <{function_type = (tensor<1x28x28x64xf32>, tensor<64x3x3x64xf32>, tensor<128x768xf32>) -> (tensor<1x28x28x64xf32>, tensor<128x3072xf32>), sym_name = "two_branches"}> ({
  ^bb0(%arg0: tensor<1x28x28x64xf32>, %arg1: tensor<64x3x3x64xf32>, %arg2: tensor<128x768xf32>):
    %0 = "tosa.const"() <{value = dense<5.000000e-01> : tensor<64xf32>}> : () -> tensor<64xf32>
    %1 = "tosa.conv2d"(%arg0, %arg1, %0) <{dilation = array<i64: 1, 1>, pad = array<i64: 1, 1, 1, 1>, stride = array<i64: 1, 1>}> : (tensor<1x28x28x64xf32>, tensor<64x3x3x64xf32>, tensor<64xf32>) -> tensor<1x28x28x64xf32>
    %2 = "tosa.clamp"(%1) <{max_fp = 6.000000e+00 : f32, max_int = 6 : i64, min_fp = 0.000000e+00 : f32, min_int = 0 : i64}> : (tensor<1x28x28x64xf32>) -> tensor<1x28x28x64xf32>
    %3 = "arith.constant"() <{value = dense<0.00999999977> : tensor<768x3072xf32>}> : () -> tensor<768x3072xf32>
    %4 = "arith.constant"() <{value = 0.000000e+00 : f32}> : () -> f32
    %5 = "tensor.empty"() : () -> tensor<128x3072xf32>
    %6 = "linalg.fill"(%4, %5) <{operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg8: f32, %arg9: f32):
      "linalg.yield"(%arg8) : (f32) -> ()
    }) : (f32, tensor<128x3072xf32>) -> tensor<128x3072xf32>
    %7 = "linalg.matmul"(%arg2, %3, %6) <{operandSegmentSizes = array<i32: 2, 1>}> ({
    ^bb0(%arg5: f32, %arg6: f32, %arg7: f32):
      %10 = "arith.mulf"(%arg5, %arg6) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      %11 = "arith.addf"(%arg7, %10) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%11) : (f32) -> ()
    }) {linalg.memoized_indexing_maps = [#map, #map1, #map2]} : (tensor<128x768xf32>, tensor<768x3072xf32>, tensor<128x3072xf32>) -> tensor<128x3072xf32>
    %8 = "linalg.generic"(%7, %5) <{indexing_maps = [#map3, #map3], iterator_types = [#linalg.iterator_type<parallel>, #linalg.iterator_type<parallel>], operandSegmentSizes = array<i32: 1, 1>}> ({
    ^bb0(%arg3: f32, %arg4: f32):
      %9 = "arith.maximumf"(%arg3, %4) <{fastmath = #arith.fastmath<none>}> : (f32, f32) -> f32
      "linalg.yield"(%9) : (f32) -> ()
    }) : (tensor<128x3072xf32>, tensor<128x3072xf32>) -> tensor<128x3072xf32>
    "func.return"(%2, %8) : (tensor<1x28x28x64xf32>, tensor<128x3072xf32>) -> ()
  }) : () -> ()
}) : () -> ()

