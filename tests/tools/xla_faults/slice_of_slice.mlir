// The algebraic simplifier makes one dynamic-slice of two, at the sum of their starts, before either start is clamped.
module @slice_of_slice {
  func.func public @main(%x: tensor<10xi32>, %first: tensor<i32>, %second: tensor<i32>) -> tensor<2xi32> {
    %five = stablehlo.dynamic_slice %x, %first, sizes = [5] : (tensor<10xi32>, tensor<i32>) -> tensor<5xi32>
    %two = stablehlo.dynamic_slice %five, %second, sizes = [2] : (tensor<5xi32>, tensor<i32>) -> tensor<2xi32>
    return %two : tensor<2xi32>
  }
}
