"""Takes the TLS secrets of Kafka's connections out of a running JVM: of a broker, or of a Java client.

jvm       `Jvm`: a process, and how an agent is loaded into it
taking    `take`: load the agent, and read the lines that it writes
outlets   where lines go: a file, or readers of a socket

The agent, in Java, is in `agent.jar`; its sources are beside this package in `java/`.
"""
