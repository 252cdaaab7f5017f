"""Special functions that XLA has no instruction for: each is a Program of other ops, and its loops go on per element."""

from meshjit.ops.special import bessel, betainc, igamma, random_gamma
