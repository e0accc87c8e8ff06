"""Tests of the whole engine with crafted captures.

harness     one capture in, plain rows out; the rows must not depend on how the packets are split into runs
kafkatalk   conversations between a client and a broker, and the exchanges expected of them
mutations   random damage to captures, packets and payloads
oracle      the exchanges of a capture, computed byte by byte
probe       digests of samples in the kernel mode of another process
"""
