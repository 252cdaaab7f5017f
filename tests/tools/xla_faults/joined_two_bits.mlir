// Elements of 2 bits behind one another: XLA's code for CPUs takes two of them to share a byte (a failed check, bit_offset).
module @joined_two_bits {
  func.func public @main(%x: tensor<2x3xi2>) -> tensor<2x6xi2> {
    %0 = stablehlo.concatenate %x, %x, dim = 1 : (tensor<2x3xi2>, tensor<2x3xi2>) -> tensor<2x6xi2>
    return %0 : tensor<2x6xi2>
  }
}
