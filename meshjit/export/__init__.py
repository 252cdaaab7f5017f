"""Functions as files that other processes call: `jax.export`.

    exported = export.export(jit(f))(x)         traced for arguments like x
    blob = exported.serialize()                 bytes, to be written anywhere
    export.deserialize(blob).call(x)            elsewhere; inside of jit, grad and vmap, too

What is written is the traced function, before any plan: each place that calls it plans for its own devices. Files are meshjit's
own: JAX does not read them, nor are JAX's read here.
"""

from meshjit.export.checks import DisabledSafetyCheck as DisabledSafetyCheck, default_export_platform as default_export_platform
from meshjit.export.exported import Exported as Exported, deserialize as deserialize, export as export
from meshjit.export.shapes import (
    SymbolicScope as SymbolicScope,
    is_symbolic_dim as is_symbolic_dim,
    symbolic_args_specs as symbolic_args_specs,
    symbolic_shape as symbolic_shape,
)
from meshjit.export.trees import (
    register_namedtuple_serialization as register_namedtuple_serialization,
    register_pytree_node_serialization as register_pytree_node_serialization,
)
from meshjit.export.version import (
    maximum_supported_calling_convention_version as maximum_supported_calling_convention_version,
    minimum_supported_calling_convention_version as minimum_supported_calling_convention_version,
)
from meshjit.missing import explain as _explain

_explain(__name__)
