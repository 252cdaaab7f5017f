"""Random bits as a pure function of a key and a counter. Imports base."""

from meshjit.ops.random import threefry
