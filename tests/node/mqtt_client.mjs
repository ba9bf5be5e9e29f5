// A client of mqtt.js at two brokers: `node mqtt_client.mjs PACKAGE.JSON VERSION URL URL`.
//
// It prints what it wants done, waits for a line on standard input, and prints what it got as JSON.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [packages, version, first, second] = process.argv.slice(2);
const mqtt = createRequire(packages)("mqtt");
const is5 = version === "5";
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

async function ask(what) {
  console.log(what);
  await lines.next();
}

class Device {
  constructor(url, clientId, options = {}) {
    const lasting = is5 ? { properties: { sessionExpiryInterval: 100 } } : {};
    this.got = [];
    this.isPresent = [];
    this.url = url;
    this.options = {
      clientId, clean: false, protocolVersion: Number(version), reconnectPeriod: 50, ...lasting, ...options,
    };
  }

  async connect(url = this.url) {
    this.client = mqtt.connect(url, this.options);
    this.client.on("error", () => {});
    this.client.on("connect", (connack) => this.isPresent.push(connack.sessionPresent));
    this.client.on("message", (topic, payload, { qos, retain }) =>
      this.got.push([topic, payload.toString(), qos, retain]),
    );
    await until(() => this.client.connected);
    return this;
  }

  async take(count) {
    await until(() => this.got.length >= count);
    return this.got.splice(0);
  }
}

async function until(condition) {
  const end = Date.now() + 60_000;
  while (!condition()) {
    if (Date.now() > end) throw new Error(`never: ${condition}, after ${JSON.stringify(found)}`);
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
}

const found = {};
const writer = await new Device(second, "js-writer").connect();
const reader = await new Device(first, "js-reader").connect();
await reader.client.subscribeAsync(["js/+", "will/+"], { qos: 2 });
await ask("settle");

for (const qos of [0, 1, 2]) await writer.client.publishAsync(`js/${qos}`, "all", { qos });
found.qos = (await reader.take(3)).sort();

await writer.client.publishAsync("kept/1", "retained", { qos: 2, retain: true });
await ask("settle");
await reader.client.subscribeAsync("kept/#", { qos: 2 });
found.retained = await reader.take(1);

const will = { topic: "will/js", payload: Buffer.from("gone"), qos: 2 };
const mortal = await new Device(second, "js-mortal", { will, reconnectPeriod: 0 }).connect();
mortal.client.stream.destroy();
found.will = await reader.take(1);

if (is5) {
  const members = [await new Device(first, "js-m1").connect(), await new Device(second, "js-m2").connect()];
  for (const member of members) await member.client.subscribeAsync("$share/g/work", { qos: 1 });
  await ask("settle");
  for (let n = 0; n < 10; n += 1) await writer.client.publishAsync("work", String(n), { qos: 1 });
  await until(() => members[0].got.length + members[1].got.length >= 10);
  found.shared = members.map((member) => member.got.map((each) => each[1]));
  for (const member of members) await member.client.endAsync();
}

await ask("kill");
for (let n = 0; n < 3; n += 1) await writer.client.publishAsync("js/down", String(n), { qos: 2 });
await ask("restart");
await until(() => reader.isPresent.length === 2);
found.reconnected = (await reader.take(3)).map((each) => each[1]);

await reader.client.endAsync(true);
for (let n = 0; n < 3; n += 1) await writer.client.publishAsync("js/away", String(n), { qos: 2 });
await reader.connect(second);
found.roamed = (await reader.take(3)).map((each) => each[1]);
found.present = reader.isPresent;
await Promise.all([reader.client.endAsync(), writer.client.endAsync()]);
console.log(JSON.stringify(found));
process.exit(0);
