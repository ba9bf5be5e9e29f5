// The page's program with the bundle that the page loads: `node page.mjs FOLDER COPY.MJS URL`.
//
// Node takes the bundle for a module by the name of the copy only.
import { copyFileSync } from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [folder, copy, page] = process.argv.slice(2);
Object.assign(globalThis, { window: globalThis, document: {}, navigator: { userAgent: "" } });
globalThis.WebSocket ??= createRequire(`${folder}/package.json`)("ws");
copyFileSync(`${folder}/node_modules/mqtt/dist/mqtt.esm.js`, copy);
const { default: mqtt } = await import(pathToFileURL(copy));
const { Offers } = await import(pathToFileURL(`${folder}/parking.js`));

const brokers = await (await fetch(`${page}/brokers.json`)).json();
const found = [];
// Node has no workers of the kind by which the bundle measures time.
const timed = (options) => ({ ...options, timerVariant: "native" });
const library = { connect: (url, options) => mqtt.connect(url, timed(options)) };
const offers = new Offers(library, "page", (offer) => found.push(offer));
const take = async (count) => {
  while (found.length < count) await new Promise((resolve) => setTimeout(resolve, 2));
  return found.splice(0);
};

await offers.connect(brokers.B1);
const [cheap] = await take(1);
await offers.connect(brokers.B2);
const [later] = await take(1);
await offers.subscribe(100);
await offers.client.endAsync();
console.log(JSON.stringify([cheap, later]));
process.exit(0);
