// As expanded_beside_branch: of two transposes that together move no element but one of extent 1, XLA makes a reshape, and that is
// not manual.
module @transposed_beside_branch attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<3x1x4xf32> {mhlo.sharding = "{manual}"}, %y: tensor<4xf32> {mhlo.sharding = "{manual}"}, %index: tensor<i32> {mhlo.sharding = "{manual}"}) -> (tensor<3x4x1xf32> {mhlo.sharding = "{manual}"}) {
    %once = stablehlo.transpose %x, dims = [1, 2, 0] {mhlo.sharding = "{manual}"} : (tensor<3x1x4xf32>) -> tensor<1x4x3xf32>
    %twice = stablehlo.transpose %once, dims = [2, 1, 0] {mhlo.sharding = "{manual}"} : (tensor<1x4x3xf32>) -> tensor<3x4x1xf32>
    %out = "stablehlo.case"(%index) ({
      %row = stablehlo.broadcast_in_dim %y, dims = [1] {mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<3x4x1xf32>
      %sum = stablehlo.add %twice, %row {mhlo.sharding = "{manual}"} : tensor<3x4x1xf32>
      stablehlo.return %sum : tensor<3x4x1xf32>
    }, {
      %square = stablehlo.multiply %twice, %twice {mhlo.sharding = "{manual}"} : tensor<3x4x1xf32>
      stablehlo.return %square : tensor<3x4x1xf32>
    }) {mhlo.sharding = "{manual}"} : (tensor<i32>) -> tensor<3x4x1xf32>
    return %out : tensor<3x4x1xf32>
  }
}
