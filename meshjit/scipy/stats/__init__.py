"""`jax.scipy.stats`: densities and distribution functions, `norm.logpdf(x, loc, scale)`, elementwise on floats of one dtype;
densities from samples.
"""

import sys

from meshjit.missing import explain as _explain
from meshjit.scipy.stats.continuous import (
    beta as beta,
    cauchy as cauchy,
    chi2 as chi2,
    expon as expon,
    gamma as gamma,
    gennorm as gennorm,
    gumbel_l as gumbel_l,
    gumbel_r as gumbel_r,
    laplace as laplace,
    logistic as logistic,
    norm as norm,
    pareto as pareto,
    t as t,
    truncnorm as truncnorm,
    uniform as uniform,
    vonmises as vonmises,
    wrapcauchy as wrapcauchy,
)
from meshjit.scipy.stats.discrete import (
    bernoulli as bernoulli,
    betabinom as betabinom,
    binom as binom,
    geom as geom,
    nbinom as nbinom,
    poisson as poisson,
)
from meshjit.scipy.stats.samples import (
    mode as mode,
    rankdata as rankdata,
    sem as sem,
)
from meshjit.scipy.stats.vectors import (
    dirichlet as dirichlet,
    multinomial as multinomial,
    multivariate_normal as multivariate_normal,
)

# JAX's distributions are modules: `import meshjit.scipy.stats.norm` finds them, too.
for _name, _value in list(globals().items()):
    if hasattr(_value, "logpdf") or hasattr(_value, "logpmf"):
        sys.modules[f"{__name__}.{_name}"] = _value

_explain(__name__, {"gaussian_kde": f"{__name__}.kde"})
