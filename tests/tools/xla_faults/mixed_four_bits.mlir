// Operands of 4 bits multiplied in 32: the conversion that XLA writes keeps the layout of 4 bits, and XLA refuses its own program.
module @mixed_four_bits {
  func.func public @main(%x: tensor<2x2xi4>) -> tensor<2x2xi32> {
    %0 = stablehlo.dot_general %x, %x, contracting_dims = [1] x [0] : (tensor<2x2xi4>, tensor<2x2xi4>) -> tensor<2x2xi32>
    return %0 : tensor<2x2xi32>
  }
}
