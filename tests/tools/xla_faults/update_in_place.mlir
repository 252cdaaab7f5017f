// The algebraic simplifier moves the reshape above the update. The update's operand is then a bitcast of what its new elements
// are computed from, fusion does not see that they are one buffer, and the loop writes where it has still to read.
module @update_in_place {
  func.func public @main(%x: tensor<6x2xf32>) -> tensor<1x6x2xf32> {
    %y = stablehlo.add %x, %x : tensor<6x2xf32>
    %after = stablehlo.slice %y [2:6, 0:2] : (tensor<6x2xf32>) -> tensor<4x2xf32>
    %before = stablehlo.slice %y [0:4, 0:2] : (tensor<6x2xf32>) -> tensor<4x2xf32>
    %update = stablehlo.subtract %after, %before : tensor<4x2xf32>
    %one = stablehlo.constant dense<1> : tensor<i32>
    %zero = stablehlo.constant dense<0> : tensor<i32>
    %z = stablehlo.dynamic_update_slice %y, %update, %one, %zero : (tensor<6x2xf32>, tensor<4x2xf32>, tensor<i32>, tensor<i32>) -> tensor<6x2xf32>
    %out = stablehlo.reshape %z : (tensor<6x2xf32>) -> tensor<1x6x2xf32>
    return %out : tensor<1x6x2xf32>
  }
}
