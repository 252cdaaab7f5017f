"""`jax.scipy.signal`: convolutions, spectra of pieces of a signal, trends."""

from meshjit.missing import explain as _explain
from meshjit.scipy.signal.convolution import (
    convolve as convolve,
    convolve2d as convolve2d,
    correlate as correlate,
    correlate2d as correlate2d,
    fftconvolve as fftconvolve,
)
from meshjit.scipy.signal.spectra import csd as csd, istft as istft, stft as stft, welch as welch
from meshjit.scipy.signal.trends import detrend as detrend

_explain(__name__)
