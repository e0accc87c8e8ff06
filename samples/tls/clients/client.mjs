// A client of kafkajs over TLS: node client.mjs MODE BOOTSTRAP AUTHORITY CLIENT_ID (modes as in main.go)
import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";

const [mode, at, authority, id] = process.argv.slice(2);
const value = "order 4711: two of article 99-1001, paid, shipped; ".repeat(4);
const kafka = new kafkajs.Kafka({
  clientId: id,
  brokers: [at],
  ssl: { ca: [readFileSync(authority, "utf8")] },
  logLevel: kafkajs.logLevel.NOTHING,
});
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

if (mode === "read") {
  const consumer = kafka.consumer({ groupId: "kafkajs", maxWaitTimeInMs: 500 });
  await consumer.connect();
  await consumer.subscribe({ topic: "quiet", fromBeginning: true });
  await consumer.run({ eachMessage: async () => {} });
  await sleep(3000);
  await consumer.disconnect();
} else {
  const producer = kafka.producer();
  await producer.connect();
  const send = () => producer.send({ topic: "orders", messages: [{ value }] });
  if (mode === "one") {
    for (let n = 0; n < 30; n++) {
      await send();
      await sleep(5);
    }
  } else {
    await Promise.all(Array.from({ length: 150 }, send));
  }
  await producer.disconnect();
}
