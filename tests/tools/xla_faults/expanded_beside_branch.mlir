// What XLA expands loses its sharding, so that what a branch closes over is partly manual and partly replicated. It ends the process.
module @expanded_beside_branch attributes {mhlo.num_partitions = 2 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%x: tensor<4xf32> {mhlo.sharding = "{manual}"}, %index: tensor<i32> {mhlo.sharding = "{manual}"}) -> (tensor<4xf32> {mhlo.sharding = "{manual}"}) {
    %erf = "chlo.erf"(%x) {mhlo.sharding = "{manual}"} : (tensor<4xf32>) -> tensor<4xf32>
    %out = "stablehlo.case"(%index) ({
      %sum = stablehlo.add %erf, %x {mhlo.sharding = "{manual}"} : tensor<4xf32>
      stablehlo.return %sum : tensor<4xf32>
    }, {
      %product = stablehlo.multiply %erf, %x {mhlo.sharding = "{manual}"} : tensor<4xf32>
      stablehlo.return %product : tensor<4xf32>
    }) {mhlo.sharding = "{manual}"} : (tensor<i32>) -> tensor<4xf32>
    return %out : tensor<4xf32>
  }
}
