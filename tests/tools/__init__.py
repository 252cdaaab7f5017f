"""What tests share and what a person runs: cases, laws, fuzzers, brute force. No file here is a test.

All of them have eight virtual CPU devices and check the types of every Program, unless the environment says otherwise.
"""

import os

os.environ.setdefault("MESHJIT_NUM_CPU_DEVICES", "8")
os.environ.setdefault("MESHJIT_ENABLE_CHECKS", "1")
