"""`jax.ad`: what `VJP.with_refs` is asked for, and what stands in its results."""

from meshjit.autodiff.into_refs import DidntWant as DidntWant, DontWant as DontWant, GradRef as GradRef, GradValue as GradValue
