// Shards of 2 bits an element whose last byte is not full: XLA copies whole bytes behind one another.
module @gathered_two_bits attributes {mhlo.num_replicas = 2 : i32} {
  func.func public @main(%x: tensor<3xi2>) -> tensor<6xi2> {
    %0 = "stablehlo.all_gather"(%x) <{all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}> : (tensor<3xi2>) -> tensor<6xi2>
    return %0 : tensor<6xi2>
  }
}
