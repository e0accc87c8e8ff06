"""Spark itself: sessions, Java and executors.

session       `open_session`
java          the Java that Spark starts
executors     `require_package`: do executors have this package?
package       the files of this package, and a fingerprint of them
failures      `explain`: a Spark error in a few lines
interrupts    `interruptible`: a job that Ctrl-C cancels
"""
