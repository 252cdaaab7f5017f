// An all-to-all of an array becomes one of as many slices. Slices of what was padded are simplified, and laid out differently.
module @pieces_of_all_to_all attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<4x12xi32>) -> tensor<24x1x4xi32> {
    %row = stablehlo.reshape %x : (tensor<4x12xi32>) -> tensor<1x4x12xi32>
    %turned = stablehlo.transpose %row, dims = [2, 0, 1] : (tensor<1x4x12xi32>) -> tensor<12x1x4xi32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %padded = stablehlo.pad %turned, %zero, low = [0, 0, 0], high = [0, 1, 0], interior = [0, 0, 0] : (tensor<12x1x4xi32>, tensor<i32>) -> tensor<12x2x4xi32>
    %out = "stablehlo.all_to_all"(%padded) <{split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<12x2x4xi32>) -> tensor<24x1x4xi32>
    return %out : tensor<24x1x4xi32>
  }
}
