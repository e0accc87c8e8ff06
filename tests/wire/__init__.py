"""Crafted captures through the whole engine.

harness     one capture in, plain rows out, in many cuttings that have to give the same rows
kafkatalk   conversations between a client and a broker that note which exchanges they ought to give
"""
