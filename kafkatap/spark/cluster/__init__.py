"""Spark itself: sessions, Java and executors.

session         `open_session`
java            the Java that Spark starts
executors       `checked`: a task that first checks its executor for this package
store_access    settings of stores, from Spark to all processes
shared_folders  `shared_folders`: captures and output that executors must see as the driver does
package         the files of this package, and a fingerprint of them
failures        `explain`: a Spark error in a few lines
interrupts      `interruptible`: a job that Ctrl-C and SIGTERM cancel
job_stages      `Stages`: progress, names and figures of the stages of a job
"""
