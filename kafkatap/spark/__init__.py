"""Captures as tables on Spark: `kafkatap.spark` needs the extra `kafkatap[spark]` and Java 17 or later.

java        the Java that Spark runs on, and what to do where there is none
session     Spark sessions as this package wants them: `open_session`
executors   what is asked of executors before work: `require_package`
package     what makes up the package, and by what two copies are told apart
pack        `python -m kafkatap.spark.pack`: one archive for executors that have nothing of it
failures    `explain`: a Spark error in a few lines
"""
