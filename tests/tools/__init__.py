"""What tests share and what a person runs: cases, laws, fuzzers, brute force. No file here is a test."""
