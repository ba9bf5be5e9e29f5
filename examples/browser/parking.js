// What the page does with MQTT; `mqtt` is mqtt.js, so that this also runs without a page.

export class Offers {
  /** Offers of car parks, as they come: `show(offer)` is called with each. */
  constructor(mqtt, clientId, show) {
    this.mqtt = mqtt;
    this.clientId = clientId;
    this.show = show;
    this.priceMax = 3;
  }

  /** Connect to a broker; the session, with its subscription and what waits, comes along. */
  async connect(url) {
    const isNew = this.client === undefined;
    if (!isNew) await this.client.endAsync();
    const client = this.mqtt.connect(url, {
      protocolVersion: 5,
      clientId: this.clientId,
      clean: false,
      properties: { sessionExpiryInterval: 3600 },
    });
    client.on("message", (topic, payload, packet) => {
      const price = Number(packet.properties.userProperties.price);
      this.show({ park: topic.split("/")[1], text: payload.toString(), price });
    });
    await new Promise((resolve, reject) => client.once("connect", resolve).once("error", reject));
    this.client = client;
    if (isNew) await this.subscribe();
  }

  /** Only offers below a price; they are filtered where they are published. */
  async subscribe(priceMax = this.priceMax) {
    this.priceMax = priceMax;
    await this.client.subscribeAsync("parking/+", {
      qos: 2,
      properties: { userProperties: { where: `price < ${priceMax}` } },
    });
  }
}
