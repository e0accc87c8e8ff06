"""The layouts of Kafka's messages as data: one .kmsg file for each API, in the notation of `layouts.notation`."""
