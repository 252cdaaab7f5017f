"""Which files are read. They are meshjit's own, and so are these numbers."""

minimum_supported_calling_convention_version = 1
maximum_supported_calling_convention_version = 1
