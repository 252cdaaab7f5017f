"""What functions of scipy, lax and random do otherwise than JAX's on purpose, by families: for docs/migration.md."""

DIFFERENT: dict[str, list[str]] = {
    "Values that are right where JAX's are not": [
        "`stats`: quantiles of what is no probability are nan, those of `gumbel_l` and `gumbel_r` at 0 and 1 infinite; `chi2.logpdf` at 0 of two"
        " degrees of freedom, where JAX gives nan; `gamma.logpdf` of nan, where it gives -inf; `bernoulli` nan where p is no probability, and"
        " discrete distributions -inf between whole numbers, where JAX goes on with its formula; `multinomial` sums each row by itself. SciPy's"
        " values, all of them.",
        "`igamma` and `igammac` of a = 0 and infinite a have their limits for every x; `loggamma` takes a side of its cut by the sign of a zero.",
        "`qr` with pivoting of a matrix without rows gives an order of the columns, not zeros; `istft` gives as many times as the signal has"
        " elements, and the whole signal of a single piece.",
        "`hyp1f1` is infinite where b is 0, -1, ... and a none of b, ..., 0, and the polynomial where it is one, at a = b too; its derivative"
        " by a is a number at a = 0, -1, ...; `sici` of float16 counts beyond 4, and `idct` of 16-bit floats computes in float32.",
        "`vmap` of `rng_bit_generator`: each member gets the key that comes next; JAX moves on the first alone, so that the others would draw the"
        " same bits once more.",
        "`unique` with `size` along a dim of empty slices gives so many; `intersect1d` with `assume_unique` of arrays that have elements twice"
        " gives none that is in one array alone.",
        "`signal.convolve` mixes no nan or infinity into elements that do not see it.",
        "`clamp` of complex numbers compares imaginary parts where real parts are equal, as max and min do.",
    ],
    "One direction for vectors that are unique up to a phase": [
        "`svd`, `eig` and `eigh` fix it the same way on all backends; JAX's is LAPACK's. `rsf2csf` of what is no Schur form has no meaning, here"
        " or there.",
    ],
    "More is taken": [
        "dtypes: integers and 16-bit floats by `ndtr`, `ndtri`, `log_ndtr`, `spence`, `norm` and `truncnorm`, 16-bit floats by `stft`,"
        " `fftconvolve` and `detrend`, integers by `cumlogsumexp`, cosine transforms of type 3.",
        "`.at` of a traced scalar boolean, and of NumPy's.",
        "objects with `__jax_array__`, and lists in `signal`, everywhere; JAX's jitted functions refuse the first.",
    ],
    "More is refused": [
        "complex parameters of distributions, and complex or float bounds of `randint`, of which JAX drops parts; extents that are floats or below"
        " 0 (`dft`, `pascal`, `hadamard`); matrices that are not square (`eigh`, `cholesky`) and rows of unequal length (`vq`), which JAX"
        " broadcasts; `rademacher` of bool, which has no -1, and `rng_bit_generator` of Threefry; unknown words that JAX does not read (`accuracy=`, `mode=`).",
    ],
    "Another kind of error": [
        "where two things are wrong, another of them may be told; where an array stands for a Python number, TypeError (JAX: what hashing it"
        " raises); where dimension numbers are of another function, AttributeError or TypeError.",
    ],
}
